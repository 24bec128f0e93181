/** The screens, in the order in which an address is looked up. */

import * as now from "hpsearch/screens/now.js";

export const SCREENS = [now];
