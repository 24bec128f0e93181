/** One trial, as it changes. */

import { useAnswer } from "hpsearch/data.js";
import { ofStudy } from "hpsearch/routes.js";

/**
 * What is known of a trial.
 *
 * @param {string} study @param {number | null} trial null asks for nothing
 */
export const useTrial = (study, trial) => useAnswer(trial === null ? null : ofStudy(study, "trials", trial), { kinds: ["trial", "best"], study, trial });
