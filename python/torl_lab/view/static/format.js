// Numbers and texts for the page.

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value < 0) return `−${number(-value, digits)}`;
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (value < 10 ** -digits || value >= 1e6) return value.toExponential(2);
  return value.toFixed(value >= 100 ? 1 : digits);
}

export const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);

export const signed = (value, digits = 3) => (value > 0 ? "+" : value < 0 ? "−" : "") + number(Math.abs(value), digits);

export const count = (value, noun, plural = `${noun}s`) => `${number(value)} ${value === 1 ? noun : plural}`;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${number(Math.round(1e4 * seconds) / 10, 1)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Characters that hide or reorder text are shown by their code points.
// eslint-disable-next-line no-control-regex
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

export function visible(text) {
  return String(text ?? "").replace(HIDDEN, (each) => {
    const code = each.charCodeAt(0);
    return code === 13 ? "␍" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

export const tokenText = (text) => visible(text).replaceAll("\n", "↵\n");

export const ago = (time) => {
  const seconds = Math.max(0, Date.now() / 1000 - time);
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
};
