// The library functions that all modules use.

import htm from "htm";
import { h } from "preact";

export { Fragment, render } from "preact";
export { useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { computed, effect, signal } from "@preact/signals";

export const html = htm.bind(h);

export const classes = (...names) => names.filter(Boolean).join(" ");
