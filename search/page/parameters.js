/** What a report says of a space's parameters, for those who draw them. */

/** The names of those that the search chooses. */
export const searchedOf = (report) => report.parameters.filter((each) => !/^(constant |= )/.test(each.values)).map(({ name }) => name);

/** The names of those whose values are far apart by their ratio: a range by logarithms, or `2 4 8 16`. */
export function logsOf(report) {
  return new Set(report.parameters.filter(({ values }) => /, log$/.test(values) || doubles(values)).map(({ name }) => name));
}

function doubles(words) {
  const numbers = words.split(" ").slice(1).map(Number);
  if (numbers.length < 3 || numbers.some((each) => !(each > 0))) return false;
  const ratio = numbers[1] / numbers[0];
  return ratio > 1.5 && numbers.every((each, k) => k === 0 || Math.abs(each / numbers[k - 1] / ratio - 1) < 0.01);
}
