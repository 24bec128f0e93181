/** Which rows of a table are shown: words that each row has to hold. */

const COMPARED = /^([^<>=:]+)(<=|>=|!=|<|>|=|:)(.+)$/;

/**
 * A test of rows for `lr<0.01 state:pruned cosine`: comparisons of columns, and words that stand anywhere in the row.
 *
 * @param {string} text
 * @param {{key: string, label: string, of: (row: any) => any}[]} columns
 */
export function filterOf(text, columns) {
  const tests = text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const [, name, sign, given] = COMPARED.exec(word) ?? [];
    const column = name && (exact(columns, name) ?? columns.find((each) => each.label.startsWith(name)));
    if (column) return (row) => compares(column.of(row), sign, given);
    const lower = word.toLowerCase();
    return (row) => columns.some((each) => String(each.of(row) ?? "").toLowerCase().includes(lower));
  });
  return (row) => tests.every((test) => test(row));
}

const exact = (columns, name) => columns.find((each) => each.key === name || each.label === name);

function compares(value, sign, given) {
  if (value === null || value === undefined) return sign === "!=";
  const wanted = Number(given);
  const [a, b] = typeof value === "number" && !Number.isNaN(wanted) ? [value, wanted] : [String(value), given];
  switch (sign) {
    case "<": return a < b;
    case ">": return a > b;
    case "<=": return a <= b;
    case ">=": return a >= b;
    case "!=": return a !== b;
    case "=": return a === b;
    default: return typeof a === "number" ? a === b : a.includes(String(b));
  }
}

/** Rows in the order of a column; what has no value comes last, both ways. */
export function sorted(rows, of, down) {
  const sign = down ? -1 : 1;
  const none = (value) => value === null || value === undefined || value === "";
  return [...rows].sort((one, other) => {
    const [a, b] = [of(one), of(other)];
    if (none(a) || none(b)) return Number(none(a)) - Number(none(b));
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}
