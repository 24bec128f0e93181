/** The screens, in the order in which an address is looked up. */

import * as compare from "hpsearch/screens/compare.js";
import * as now from "hpsearch/screens/now.js";
import * as report from "hpsearch/screens/report.js";
import * as study from "hpsearch/screens/study.js";
import * as submit from "hpsearch/screens/submit.js";
import * as trial from "hpsearch/screens/trial.js";
import * as winner from "hpsearch/screens/winner.js";

export const SCREENS = [now, submit, study, winner, trial, compare, report];
