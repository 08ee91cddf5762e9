// Saves the view that is shown as one HTML file without scripts, for a report or an issue.
import { esc } from './text.js';

export async function save(main, title) {
  const copy = main.cloneNode(true);
  const drawn = main.querySelectorAll('canvas');
  copy.querySelectorAll('canvas').forEach((canvas, at) => {
    const image = document.createElement('img');
    image.src = drawn[at].toDataURL('image/png');
    image.alt = 'curves';
    image.width = drawn[at].clientWidth;
    canvas.replaceWith(image);
  });
  copy.querySelectorAll('button, select, input, form').forEach((each) => each.remove());
  copy.querySelectorAll('a').forEach((each) => each.removeAttribute('href'));
  copy.querySelectorAll('details').forEach((each) => { each.open = true; });
  const styles = await Promise.all(['page.css', 'vendor/uplot.min.css'].map(async (name) => (await fetch(`/static/${name}`)).text()));
  const theme = document.documentElement.dataset.theme;
  const page = `<!doctype html><html lang="en"${theme ? ` data-theme="${esc(theme)}"` : ''}><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"><title>${
    esc(title)}</title><style>${styles.join('\n')}</style></head><body><main>${copy.innerHTML}<p class="none">replitree, seen ${new Date().toISOString().slice(0, 19).replace('T', ' ')} UTC</p></main></body></html>`;
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([page], { type: 'text/html' }));
  link.download = `${title.replace(/[^A-Za-z0-9.-]+/g, '-')}.html`;
  link.click();
  URL.revokeObjectURL(link.href);
}
