/** The screens, in the order in which an address is looked up. */

import * as now from "hpsearch/screens/now.js";
import * as report from "hpsearch/screens/report.js";
import * as study from "hpsearch/screens/study.js";

export const SCREENS = [now, study, report];
