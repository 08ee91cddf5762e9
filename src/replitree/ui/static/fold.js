// The fold in JavaScript: the parts that a table has at any position of its log, forwards and backwards.
//
// The rules are those of `replitree/protocol/core/fold.py`, one function here for one there; tests/ui/test_fold.py compares the
// two on random logs of every kind of entry, at every position.  An entry is what `page_entry` in table_view.py makes of it.
// This file imports nothing, so that any engine runs it.

export const EVERY_PARTITION = '*';

export class Part {
  constructor(partition, min, max, level, mutation = 0, rows = 0, bytes = 0, isExact = true) {
    this.partition = partition;
    this.min = min;
    this.max = max;
    this.level = level;
    this.mutation = mutation;
    this.rows = rows;
    this.bytes = bytes;
    // Whether rows and bytes are known: those of a merged part are sums, until a replica has told them.
    this.isExact = isExact;
  }

  get name() {
    const stem = `${this.partition}_${this.min}_${this.max}_${this.level}`;
    return this.mutation ? `${stem}_${this.mutation}` : stem;
  }

  is(other) {
    return this.partition === other.partition && this.min === other.min && this.max === other.max
      && this.level === other.level && this.mutation === other.mutation;
  }

  covers(other) {
    if (this.partition !== other.partition || this.mutation < other.mutation) return false;
    if (this.min === other.min && this.max === other.max) return this.level >= other.level;
    return this.min <= other.min && this.max >= other.max && this.level > other.level;
  }

  mutated(index, rows = this.rows, bytes = this.bytes, isExact = true) {
    return new Part(this.partition, this.min, this.max, this.level, index, rows, bytes, isExact);
  }
}

export function parsePart(name) {
  const [partition, ...numbers] = name.split('_');
  return new Part(partition, ...numbers.map(Number));
}

export function mergedPart(sources) {
  const sum = (of) => sources.reduce((total, each) => total + of(each), 0);
  return new Part(
    sources[0].partition, sources[0].min, sources[sources.length - 1].max,
    Math.max(...sources.map((each) => each.level)) + 1, Math.max(...sources.map((each) => each.mutation)),
    sum((each) => each.rows), sum((each) => each.bytes), false,
  );
}

// What is in some parts; `values` are the areas of their rectangles, in which no part has none.
function summed(parts) {
  const sums = { count: parts.length, rows: 0, bytes: 0, level: 0, mutation: 0, values: { rows: 0, bytes: 0 }, levels: new Map() };
  for (const part of parts) {
    let level = sums.levels.get(part.level);
    if (!level) sums.levels.set(part.level, level = { level: part.level, count: 0, rows: 0, bytes: 0, mutation: 0, values: { rows: 0, bytes: 0 } });
    for (const sum of [sums, level]) {
      sum.rows += part.rows;
      sum.bytes += part.bytes;
      sum.values.rows += Math.max(1, part.rows);
      sum.values.bytes += Math.max(1, part.bytes);
      if (part.mutation > sum.mutation) sum.mutation = part.mutation;
    }
    level.count += 1;
    if (part.level > sums.level) sums.level = part.level;
  }
  return sums;
}

const RENAMED_MAX = 64;

// Parts of which no two share a block: for each partition an array, ascending by block.  A copy shares the arrays and the sums
// with its original; whichever changes a partition first takes an array of its own.
export class PartSet {
  #own = new Set();
  #sums = new Map();
  #names = null;
  #renamed = 0;

  constructor(parts = []) {
    this.partitions = new Map();
    this.length = 0;
    this.replace([], parts);
  }

  copy() {
    const made = new PartSet();
    made.partitions = new Map(this.partitions);
    made.length = this.length;
    made.#sums = new Map(this.#sums);
    made.#names = this.#names?.slice() ?? null;
    this.#own = new Set();
    return made;
  }

  // Partitions ascending, as in the names of parts.
  names() {
    this.#names ??= [...this.partitions.keys()].sort();
    this.#renamed = 0;
    return this.#names;
  }

  all() {
    return this.names().flatMap((name) => this.partitions.get(name));
  }

  in(partition) {
    return partition === EVERY_PARTITION ? this.all() : this.partitions.get(partition) ?? [];
  }

  // Counts, rows and bytes of a partition and of each level in it; summed once after each change.
  sumsOf(partition) {
    let sums = this.#sums.get(partition);
    if (!sums) this.#sums.set(partition, sums = summed(this.partitions.get(partition) ?? []));
    return sums;
  }

  // Sizes of parts have changed: sums are taken anew.
  forgetSums() {
    this.#sums.clear();
  }

  // The number of parts whose first block is at most `block`.
  static place(parts, block) {
    let low = 0, high = parts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (parts[middle].min <= block) low = middle + 1; else high = middle;
    }
    return low;
  }

  find(part) {
    const parts = this.partitions.get(part.partition) ?? [];
    const found = parts[PartSet.place(parts, part.min) - 1];
    return found !== undefined && found.is(part) ? found : undefined;
  }

  covering(part) {
    const parts = this.partitions.get(part.partition) ?? [];
    const before = parts[PartSet.place(parts, part.min) - 1];
    return before !== undefined && before.covers(part) ? before : undefined;
  }

  between(partition, min, max) {
    const parts = this.partitions.get(partition) ?? [];
    const found = [];
    for (let i = Math.max(0, PartSet.place(parts, min) - 1); i < parts.length && parts[i].min <= max; i++) {
      if (parts[i].max >= min) found.push(parts[i]);
    }
    return found;
  }

  replace(removed, added) {
    this.length += added.length - removed.length;
    const changes = new Map();
    const of = (part) => {
      if (!changes.has(part.partition)) changes.set(part.partition, { removed: new Set(), added: [] });
      return changes.get(part.partition);
    };
    for (const part of removed) of(part).removed.add(part.min);
    for (const part of added) of(part).added.push(part);
    for (const [partition, change] of changes) {
      let parts = this.partitions.get(partition) ?? [];
      if (change.removed.size + change.added.length <= 16) {
        if (!this.#own.has(partition)) parts = parts.slice();
        for (const min of change.removed) parts.splice(PartSet.place(parts, min) - 1, 1);
        for (const part of change.added) parts.splice(PartSet.place(parts, part.min), 0, part);
      } else {
        const left = parts.filter((part) => !change.removed.has(part.min));
        parts = [...left, ...change.added].sort((a, b) => a.min - b.min);
      }
      this.#keep(partition, parts);
    }
  }

  #keep(partition, parts) {
    const was = this.partitions.has(partition);
    this.#sums.delete(partition);
    this.#own.add(partition);
    if (parts.length) this.partitions.set(partition, parts); else this.partitions.delete(partition);
    if (this.#names === null || was === parts.length > 0) return;
    // A sorted array of 10^5 names is changed faster than it is sorted, unless many names come or go.
    if (++this.#renamed > RENAMED_MAX) { this.#names = null; return; }
    let low = 0, high = this.#names.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#names[middle] < partition) low = middle + 1; else high = middle;
    }
    if (was) this.#names.splice(low, 1); else this.#names.splice(low, 0, partition);
  }
}

const NOTHING = { removed: [], added: [] };

export function openAfter(opened, entry) {
  if (entry.kind === 'get' && entry.quorum) return [...opened, entry.i];
  if (entry.kind === 'settle' || entry.kind === 'fail') return opened.filter((each) => each !== entry.of);
  return opened;
}

const isOpen = (part, opened) => part.min === part.max && opened.includes(part.min);
const isChangedSince = (part, since) => part.max >= since || part.mutation >= since;
const earlier = (parts, partition, index) => parts.in(partition).filter((part) => part.max < index);
const inserted = (staged, index) => staged.map(([partition, rows, bytes]) => new Part(partition, index, index, 0, 0, rows, bytes));

// What an entry changes in a table that has `parts`, while the inserts at `opened` are open.
export function changeOf(parts, entry, opened) {
  const index = entry.i;
  switch (entry.kind) {
    case 'get':
      return {
        removed: entry.drops.flatMap((partition) => earlier(parts, partition, index)),
        added: inserted(entry.parts, index).filter((part) => !parts.covering(part)),
      };
    case 'merge': {
      const named = entry.sources.map(parsePart);
      if (named.some((part) => isOpen(part, opened))) return NOTHING;
      const there = parts.between(named[0].partition, named[0].min, named[named.length - 1].max);
      const same = there.length === named.length && there.every((part, i) => part.is(named[i]));
      return same ? { removed: there, added: [mergedPart(there)] } : NOTHING;
    }
    case 'mutate': {
      let found = earlier(parts, entry.partition, index).filter((part) => part.mutation < index);
      if (entry.partitions !== undefined) {
        const listed = new Set(entry.partitions);
        found = found.filter((part) => listed.has(part.partition) || isChangedSince(part, entry.since));
      }
      return { removed: found, added: found.map((part) => part.mutated(index, part.rows, part.bytes, false)) };
    }
    case 'rewrite':
      return changeOfRewrite(parts, entry, opened);
    case 'drop':
      return changeOfDrop(parts, entry);
    case 'fail': {
      const found = entry.partitions.flatMap((partition) => parts.between(partition, entry.of, entry.of));
      return { removed: found.filter((part) => part.min === entry.of && part.max === entry.of), added: [] };
    }
    case 'lost': {
      const cover = parts.covering(parsePart(entry.part));
      if (!cover) return NOTHING;
      return { removed: [cover], added: [cover.mutated(cover.mutation, 0, 0)] };
    }
    default:
      return NOTHING;
  }
}

function changeOfDrop(parts, entry) {
  if (entry.min === null || entry.max === null) return { removed: earlier(parts, entry.partition, entry.i), added: [] };
  const last = Math.min(entry.max, entry.i - 1);
  const touched = parts.in(entry.partition).filter((part) => part.min <= last && entry.min <= part.max);
  const within = touched.every((part) => entry.min <= part.min && part.max <= last);
  return within ? { removed: touched, added: [] } : NOTHING;
}

function changeOfRewrite(parts, entry, opened) {
  const found = entry.results.map(([source]) => parts.find(parsePart(source)));
  if (found.some((part) => part === undefined || isOpen(part, opened))) return NOTHING;
  if (entry.unchanged && !reliesOnWhatIs(parts, entry.unchanged, new Set(found))) return NOTHING;
  const results = found.map((part, i) => part.mutated(entry.i, entry.results[i][1], entry.results[i][2]));
  const added = inserted(entry.inserts, entry.i).filter((part) => !parts.covering(part));
  return { removed: found, added: [...results, ...added] };
}

function reliesOnWhatIs(parts, unchanged, sources) {
  const { since, opened = [] } = unchanged;
  return !unchanged.partitions.some((partition) => parts.in(partition).some((part) => !sources.has(part)
    && (isChangedSince(part, since) || opened.some((block) => part.min <= block && block <= part.max))));
}

// Reads the columns that `columns_of` in table_view.py has written.
export function partsOf(columns) {
  return (columns.min ?? []).map((min, i) => new Part(
    columns.partitions[columns.partition[i]], min, columns.max[i], columns.level[i], columns.mutation[i],
    columns.rows[i], columns.bytes[i],
  ));
}

const KEPT_MAX = 48, KEPT_STEP = 256;

// A table at a position of its log.  A step applies one entry or takes it back; its change is computed once.  On its way the
// machine keeps copies of the parts, at most `KEPT_MAX`, so that a jump goes over few entries.
export class TimeMachine {
  constructor(base) {
    this.base = base.index;
    this.position = base.index;
    this.parts = new PartSet(partsOf(base));
    this.opened = [];
    this.entries = [];
    this.changes = [];
    this.openedBefore = [];
    this.applied = 0;
    this.kept = [{ applied: 0, parts: this.parts.copy(), opened: [] }];
    this.keptStep = KEPT_STEP;
  }

  get tail() {
    return this.entries.length ? this.entries[this.entries.length - 1].i + 1 : this.base;
  }

  append(entries) {
    for (const entry of entries) if (entry.i >= this.tail) this.entries.push(entry);
  }

  // Goes to the parts of fold(log[0:n]), over at most `most` entries; whether it is there.
  seek(n, most = Infinity) {
    const target = this.#placeOf(n);
    const near = this.#nearest(target);
    if (Math.abs(near.applied - target) + 1 < Math.abs(this.applied - target)) {
      this.parts = near.parts.copy();
      this.opened = near.opened;
      this.applied = near.applied;
    }
    let left = most;
    for (; this.applied < target && left > 0; left--) this.#forward();
    for (; this.applied > target && left > 0; left--) this.#back();
    const isThere = this.applied === target;
    this.position = isThere ? Math.max(this.base, n) : this.applied ? this.entries[this.applied - 1].i + 1 : this.base;
    return isThere;
  }

  // Whether the size of a part that is there is a sum only.
  get isEstimated() {
    return [...this.parts.partitions.values()].some((parts) => parts.some((part) => !part.isExact));
  }

  // Takes over the sizes that a replica has told of parts, from the columns of `partsOf`.
  measure(columns) {
    const wanted = new Map();
    for (const { added } of this.changes) {
      for (const part of added) {
        if (part.isExact) continue;
        const { name } = part, same = wanted.get(name);
        if (same) same.push(part); else wanted.set(name, [part]);
      }
    }
    if (!wanted.size) return;
    (columns.min ?? []).forEach((min, i) => {
      // Only merges and mutations make parts whose sizes are not in the log.
      if (!columns.level[i] && !columns.mutation[i]) return;
      const name = new Part(columns.partitions[columns.partition[i]], min, columns.max[i], columns.level[i], columns.mutation[i]).name;
      for (const part of wanted.get(name) ?? []) Object.assign(part, { rows: columns.rows[i], bytes: columns.bytes[i], isExact: true });
    });
    for (const { parts } of [this, ...this.kept]) parts.forgetSums();
  }

  // What the entry at a place of `entries` has changed; undefined until `seek` has gone over it.
  changeAt(place) {
    return this.changes[place];
  }

  // How many entries are below a position.
  #placeOf(n) {
    let low = 0, high = this.entries.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.entries[middle].i < n) low = middle + 1; else high = middle;
    }
    return low;
  }

  #nearest(target) {
    const distance = (each) => Math.abs(each.applied - target);
    return this.kept.reduce((best, each) => (distance(each) < distance(best) ? each : best));
  }

  #keep() {
    const last = this.kept[this.kept.length - 1].applied;
    // A copy of a table with many partitions costs as much as many entries.
    if (this.applied - last < Math.max(this.keptStep, this.parts.partitions.size / 16)) return;
    this.kept.push({ applied: this.applied, parts: this.parts.copy(), opened: this.opened });
    if (this.kept.length > KEPT_MAX) {
      this.kept = this.kept.filter((_, at) => at % 2 === 0);
      this.keptStep *= 2;
    }
  }

  #forward() {
    const place = this.applied++;
    const entry = this.entries[place];
    const isNew = this.changes.length === place;
    if (isNew) {
      this.openedBefore.push(this.opened);
      this.changes.push(changeOf(this.parts, entry, this.opened));
    }
    const { removed, added } = this.changes[place];
    this.parts.replace(removed, added);
    this.opened = openAfter(this.opened, entry);
    if (isNew) this.#keep();
  }

  #back() {
    const place = --this.applied;
    const { removed, added } = this.changes[place];
    this.parts.replace(added, removed);
    this.opened = this.openedBefore[place];
  }
}
