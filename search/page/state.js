/** The state of a study in one word and a sentence, from its row in a list and its place in the queue. */

/**
 * @param {any} study a row of the route of studies, or a report
 * @param {any} queued the study in the queue; null where the queue does not have it
 * @returns {{state: string, reason: string, since: string | null}}
 */
export function stateOf(study, queued) {
  if (study.unreadable) return { state: "failed", reason: study.unreadable, since: null };
  if (queued?.driver && queued.state.state === "elsewhere") return { ...queued.state, state: study.paused ? "paused" : "running" };
  if (queued) return queued.state;
  if (study.searching) return { state: study.paused ? "paused" : "running", reason: `process ${study.searching} searches it`, since: null };
  if (study.over ?? study.phase === "over") return { state: "finished", reason: "nothing is left to do", since: null };
  const states = study.states ?? {};
  const failed = states.fail > 0 && Object.keys(states).every((each) => each === "fail");
  if (failed) return { state: "failed", reason: "all its trials have failed", since: null };
  return { state: "stopped", reason: "no search of it runs", since: null };
}
