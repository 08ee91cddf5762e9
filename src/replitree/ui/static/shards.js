// The sharded tables: which shard owns how many buckets, and what moves.
import { ask, put, widthOf } from './dom.js';
import { chip, esc, many, number, size, span, stateOf, table } from './text.js';

export const shardedNames = (overview) => [...new Set(overview.tables.filter((each) => each.name.includes('~')).map((each) => each.name.split('~')[0]))].sort();

export function shardBars(found, width) {
  const most = Math.max(1, ...found.owned.map((each) => each.buckets));
  const rows = found.owned.map((each, at) => {
    const wide = (Math.max(20, width - 240) * each.buckets) / most, y = at * 24;
    return `<text class="name" x="4" y="${y + 16}">shard ${each.shard}</text><rect class="l1" x="70" y="${y + 4}" width="${wide.toFixed(1)}" height="16"/><text class="note" x="${(76 + wide).toFixed(1)}" y="${y + 16}">${many(each.buckets, 'bucket')}, weight ${number(each.weight)}</text>`;
  });
  const says = found.owned.map((each) => `shard ${each.shard} owns ${many(each.buckets, 'bucket')}`).join(', ');
  const high = found.owned.length * 24 + 4;
  return `<svg class="map" viewBox="0 0 ${width} ${high}" width="${width}" height="${high}" role="img" aria-label="${esc(says)}">${rows.join('')}</svg>`;
}

function oneTable(name, found, overview, width) {
  const shards = overview.tables.filter((each) => each.name.startsWith(`${name}~`));
  const rows = shards.map((each) => [
    { html: `<a href="#/table/${encodeURIComponent(each.name)}">${esc(each.name)}</a>` }, number(each.rows), number(each.parts), size(each.bytes), number(each.log_tail),
    { html: each.replicas.map((replica) => `${esc(replica.name)} ${chip(stateOf(replica))}`).join(' ') },
  ]);
  const moves = found && found.moves.length
    ? `${table('Moves', ['from', 'to', 'buckets'], found.moves.map((each) => [`shard ${each.source}`, `shard ${each.target}`, number(each.buckets)]))}<p>${many(found.rows, 'row')} (${size(found.bytes)}) have arrived, ${number(found.on_its_way)} are on their way; the last progress was ${span(found.idle_s)} ago.</p>`
    : '<p class="none">No buckets move.</p>';
  return `<section><h2>${esc(name)}</h2><div class="picture">${found ? shardBars(found, width) : ''}</div>${moves}${table(`Shards of ${name}`, ['shard', 'rows', 'parts', 'size', 'log up to', 'replicas'], rows)}</section>`;
}

export const shardsView = {
  title: 'Shards',
  mount: (main, state) => {
    main.innerHTML = '<h1>Shards and moves</h1><div data-part="all"></div>';
    state.shards = {};
    state.shardsAsked = 0;
  },
  update: (main, state) => {
    const names = shardedNames(state.overview), all = main.querySelector('[data-part=all]');
    put(all, names.map((name) => oneTable(name, state.shards[name], state.overview, Math.min(760, widthOf(all)))).join('') || '<p class="none">There are no sharded tables.</p>');
    if (state.shardsAsked === state.overview.at) return;
    state.shardsAsked = state.overview.at;
    Promise.all(names.map(async (name) => { state.shards[name] = await ask('shards', { table: name }); }))
      .then(() => state.view === shardsView && names.length && shardsView.update(main, state))
      .catch((error) => state.fail(error));
  },
};
