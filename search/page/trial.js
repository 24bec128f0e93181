/** One trial, as it changes. */

import { useMemo } from "hpsearch/html.js";
import { useAnswer, useSource } from "hpsearch/data.js";
import { ofStudy } from "hpsearch/routes.js";
import { curvesPath, trialsPath } from "hpsearch/trials.js";

/**
 * What is known of a trial: all of it from a server, its row and its curve from a report that holds no more.
 *
 * @param {string} study @param {number | null} trial null asks for nothing
 */
export function useTrial(study, trial) {
  const source = useSource();
  const own = useAnswer(trial === null ? null : ofStudy(study, "trials", trial), { kinds: ["trial", "best"], study, trial });
  const lacks = source.frozen && own.problem !== null;
  const rows = useAnswer(lacks ? trialsPath(study) : null, { pages: true });
  const curves = useAnswer(lacks && rows.value ? curvesPath(study, rows.value.length) : null);
  const report = useAnswer(lacks ? ofStudy(study) : null);
  const value = useMemo(() => {
    if (own.value || !rows.value) return own.value;
    const row = rows.value.find((each) => each.number === trial);
    const at = curves.value?.trial.indexOf(trial) ?? -1;
    const curve = at < 0 ? [] : curves.value.step[at].map((step, index) => [step, curves.value.value[at][index]]);
    const about = { metric: report.value?.metric ?? "value", resource: report.value?.resource ?? "step" };
    return row && { study, ...about, kinds: {}, curve, bracket: null, bracket_rungs: [], rungs: [], advice: [], attributes: {}, files: [], ...row };
  }, [own.value, rows.value, curves.value, report.value]);
  return { ...own, value };
}
