/** What every part is written with. */

import { h, render, Fragment, createContext } from "preact";
import htm from "htm";

export const html = htm.bind(h);
export { render, Fragment, createContext };
export { useCallback, useContext, useEffect, useId, useImperativeHandle, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
