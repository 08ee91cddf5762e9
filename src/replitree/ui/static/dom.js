// The few helpers that touch the document.

// Puts HTML into an element, if it is other than before; a link or button that had the focus gets it back.
const shown = new WeakMap();

export function put(element, html) {
  if (!element || shown.get(element) === html) return false;
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const key = focused?.getAttribute('href') ?? focused?.dataset?.key;
  const open = new Set([...element.querySelectorAll('details[open]')].map((each) => each.dataset.key));
  const scrolled = [...element.querySelectorAll('.scroll')].map((each) => [each.scrollLeft, each.scrollTop]);
  element.innerHTML = html;
  shown.set(element, html);
  element.querySelectorAll('details').forEach((each) => { if (open.has(each.dataset.key)) each.open = true; });
  element.querySelectorAll('.scroll').forEach((each, at) => { if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at]; });
  if (key) [...element.querySelectorAll('[href], [data-key]')].find((each) => (each.getAttribute('href') ?? each.dataset.key) === key)?.focus();
  return true;
}

export class Failed extends Error {}

// Asks this page's server; an error is a sentence.
export async function ask(path, query = {}) {
  const words = new URLSearchParams(query).toString();
  let answer;
  try {
    answer = await fetch(`/api/${path}${words ? `?${words}` : ''}`);
  } catch {
    throw new Failed('the page\'s process does not answer: it has ended, or the connection is lost');
  }
  if (answer.status === 403) throw new Failed('the page\'s process was started anew: open the address that it has printed');
  const body = await answer.json();
  if (!answer.ok) throw new Failed(body.error);
  return body;
}

export const widthOf = (element) => Math.max(280, Math.floor(element?.clientWidth ?? 800));
