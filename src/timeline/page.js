'use strict';
// Draws the page from the JSON in #data (page_data.h says what is in there).
const data = JSON.parse(document.getElementById('data').textContent);
const timelines = data.timelines;
const MIGRATED = 1, FINISHED = 2, MOVED = 4, RECOMPUTED = 8, TAIL = 16;
const MARGIN = {left: 92, right: 14, top: 18, bottom: 24};
const longest = Math.max(1e-6, ...timelines.map(t => t.seconds));
const view = {from: 0, to: longest};  // seconds that all charts show
const charts = [];
const tip = document.getElementById('tip');

// ---- small things

function element(tag, parent, text) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const series = i => css('--s' + i % 8);
const count = n => Math.round(n).toLocaleString('en-US');
function time(s) {
  if (s === 0) return '0 s';
  if (s < 1e-3) return (s * 1e6).toPrecision(3) + ' µs';
  if (s < 1) return (s * 1e3).toPrecision(3) + ' ms';
  return s < 100 ? s.toPrecision(3) + ' s' : count(s) + ' s';
}
function ticks(from, to, wanted) {
  const raw = (to - from) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(f => f * power >= raw);
  const list = [];
  for (let k = Math.ceil(from / step); k * step <= to + step * 1e-9; ++k) list.push(k * step);
  return list;
}

// ---- a chart: a canvas with a time axis, which the others share

class Chart {
  constructor(parent, label, height) {
    this.canvas = element('canvas', parent);
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', label);
    this.height = height;
    this.canvas.style.height = height + 'px';
    this.canvas.addEventListener('mousemove', e => this.moved(e));
    this.canvas.addEventListener('mouseleave', () => this.left());
    this.canvas.addEventListener('mousedown', e => { this.dragged = this.seconds(e.offsetX); });
    this.canvas.addEventListener('mouseup', e => this.released(this.seconds(e.offsetX)));
    this.canvas.addEventListener('dblclick', () => show(0, longest));
    charts.push(this);
  }
  get width() { return this.canvas.clientWidth; }
  x(seconds) {
    return MARGIN.left + (seconds - view.from) / (view.to - view.from) * (this.width - MARGIN.left - MARGIN.right);
  }
  seconds(x) {
    const share = (x - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
    return view.from + Math.min(1, Math.max(0, share)) * (view.to - view.from);
  }
  draw() {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    const c = this.c = this.canvas.getContext('2d');
    c.scale(ratio, ratio);
    c.font = '12px system-ui, "DejaVu Sans", sans-serif';
    this.background();
    c.save();
    c.beginPath();
    c.rect(MARGIN.left, 0, this.width - MARGIN.left - MARGIN.right, this.height - MARGIN.bottom);
    c.clip();
    this.paint(c);
    c.restore();
    this.axis(c);
  }
  // Shades the seconds in which only the last responses were left.
  shade(t) {
    const c = this.c;
    c.fillStyle = css('--tail');
    const begin = Math.max(MARGIN.left, this.x(t.tail_begin));
    const end = Math.min(this.width - MARGIN.right, this.x(t.seconds));
    if (end > begin) c.fillRect(begin, 0, end - begin, this.height - MARGIN.bottom);
  }
  axis(c) {
    c.fillStyle = css('--faint');
    c.strokeStyle = css('--line');
    c.textAlign = 'center';
    const base = this.height - MARGIN.bottom + .5;
    c.beginPath();
    c.moveTo(MARGIN.left, base);
    c.lineTo(this.width - MARGIN.right, base);
    for (const tick of ticks(view.from, view.to, Math.max(2, this.width / 140))) {
      c.moveTo(this.x(tick), base);
      c.lineTo(this.x(tick), base + 4);
      c.fillText(time(tick), this.x(tick), base + 17);
    }
    c.stroke();
  }
  moved(event) {
    const text = this.describe(event.offsetX, event.offsetY);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - wide - 8) + 'px';
    tip.style.top = Math.min(event.clientY + 14, window.innerHeight - high - 8) + 'px';
  }
  left() {
    tip.hidden = true;
    this.dragged = undefined;
  }
  released(end) {
    const begin = this.dragged;
    this.dragged = undefined;
    if (begin !== undefined && Math.abs(this.x(end) - this.x(begin)) > 5)
      show(Math.min(begin, end), Math.max(begin, end));
  }
}

// ---- the chunks of each instance

class Gantt extends Chart {
  constructor(parent, t) {
    const rows = t.lanes.reduce((sum, lane) => sum + Math.max(1, lane.rows), 0);
    const row = Math.min(13, Math.max(1, Math.floor(560 / rows)));
    const tops = [];
    let y = MARGIN.top;
    for (const lane of t.lanes) {
      tops.push(y);
      y += Math.max(1, lane.rows) * row + (t.lanes.length > 16 ? 2 : 8);
    }
    super(parent, 'Chunks of each instance over time: ' + t.name, y + MARGIN.bottom);
    Object.assign(this, {t, row, tops, focus: undefined, colour: new Map()});
    for (const group of t.boxes.group)
      if (!this.colour.has(group)) this.colour.set(group, this.colour.size * 137.508 % 360);
  }
  background() {
    const c = this.c;
    this.shade(this.t);
    c.fillStyle = css('--faint');
    c.textAlign = 'right';
    let last = -20;
    this.t.lanes.forEach((lane, i) => {
      const middle = this.tops[i] + Math.max(1, lane.rows) * this.row / 2 + 4;
      if (middle - last < 12) return;
      last = middle;
      c.fillText('instance ' + lane.instance, MARGIN.left - 8, middle);
    });
    if (this.t.requests > 0 && this.x(this.t.tail_begin) > MARGIN.left) {
      c.textAlign = this.x(this.t.tail_begin) > this.width - 160 ? 'right' : 'left';
      c.fillText(' last 10 % of the responses ', this.x(this.t.tail_begin), 13);
    }
  }
  place(i) {
    const b = this.t.boxes;
    const begin = this.x(b.begin[i] * 1e-6), end = this.x((b.begin[i] + b.end[i]) * 1e-6);
    return [begin, this.tops[b.lane[i]] + b.row[i] * this.row, Math.max(.4, end - begin), this.row];
  }
  paint(c) {
    const b = this.t.boxes;
    const saturation = css('--box-saturation'), light = css('--box-light'), edge = css('--edge');
    for (let i = 0; i < b.begin.length; ++i) {
      const [x, y, w, h] = this.place(i);
      const lit = this.focus === undefined ? b.flags[i] & TAIL : b.group[i] === b.group[this.focus];
      c.globalAlpha = lit ? 1 : this.focus === undefined ? .5 : .18;
      c.fillStyle = `hsl(${this.colour.get(b.group[i])} ${saturation} ${light})`;
      c.fillRect(x, y, w > 2 ? w - .6 : w, h > 3 ? h - 1 : h);
      if (w < 5 || h < 3) continue;
      c.fillStyle = edge;
      if (b.flags[i] & MIGRATED) c.fillRect(x, y, 2, h - 1);
      if (b.flags[i] & FINISHED) c.fillRect(x + w - 2.2, y + (h - 1) / 4, 1.6, (h - 1) / 2);
    }
    c.globalAlpha = 1;
    if (this.focus !== undefined) this.follow(c);
  }
  // The way of the request under the pointer.
  follow(c) {
    const b = this.t.boxes, request = b.request[this.focus];
    c.strokeStyle = css('--edge');
    c.lineWidth = 1.4;
    let from;
    for (let i = 0; i < b.begin.length; ++i) {
      if (b.request[i] !== request) continue;
      const [x, y, w, h] = this.place(i);
      c.strokeRect(x, y, w, h);
      if (from) {
        c.beginPath();
        c.moveTo(...from);
        c.lineTo(x, y + h / 2);
        c.stroke();
      }
      from = [x + w, y + h / 2];
    }
    c.lineWidth = 1;
  }
  at(x, y) {
    const b = this.t.boxes;
    for (let i = 0; i < b.begin.length; ++i) {
      const [left, top, w, h] = this.place(i);
      if (x >= left - 1 && x <= left + w + 1 && y >= top && y < top + h) return i;
    }
    return undefined;
  }
  describe(x, y) {
    const i = this.at(x, y), b = this.t.boxes;
    if (i !== this.focus) {
      this.focus = i;
      this.draw();
    }
    if (i === undefined) return '';
    const flags = b.flags[i], begin = b.begin[i] * 1e-6, length = b.end[i] * 1e-6;
    const kv = flags & MOVED ? 'moved here' : flags & RECOMPUTED ? 'computed again' : 'was here';
    const rate = length > 0 ? ` (${((b.to[i] - b.from[i]) / length).toPrecision(3)} tokens/s)` : '';
    return `group ${b.group[i]}, request ${b.request[i]}\n` +
        `tokens ${b.from[i]} to ${b.to[i]}${flags & FINISHED ? ', the end' : ''}\n` +
        `${time(begin)} to ${time(begin + length)}: ${time(length)}${rate}\n` +
        `KV ${kv}${flags & MIGRATED ? '; came from another instance' : ''}` +
        (flags & TAIL ? '\namong the last 10 % to finish' : '');
  }
  left() {
    super.left();
    if (this.focus === undefined) return;
    this.focus = undefined;
    this.draw();
  }
}

// ---- curves over time: lines are {label, colour, points: [[seconds, value], …]}, steps from each point on

class Curves extends Chart {
  constructor(parent, label, options) {
    super(parent, label, 150);
    Object.assign(this, options);  // lines(), band, most, unit(value), tail
  }
  y(value) {
    return this.height - MARGIN.bottom - value / this.most * (this.height - MARGIN.bottom - MARGIN.top);
  }
  background() {
    const c = this.c;
    if (this.tail) this.shade(this.tail);
    c.textAlign = 'right';
    for (const tick of ticks(0, this.most, 3)) {
      c.fillStyle = css('--faint');
      c.fillText(this.unit(tick), MARGIN.left - 8, this.y(tick) + 4);
      c.fillStyle = css('--line');
      c.fillRect(MARGIN.left, Math.round(this.y(tick)), this.width - MARGIN.left - MARGIN.right, 1);
    }
  }
  trace(c, points, back) {
    let previous;
    for (const [s, value] of points) {
      if (previous !== undefined) c.lineTo(this.x(s), this.y(back ? value : previous));
      if (previous !== undefined && back) c.lineTo(this.x(s), this.y(previous));
      c.lineTo(this.x(s), this.y(value));
      previous = value;
    }
  }
  paint(c) {
    const lines = this.lines();
    if (this.band) {
      c.fillStyle = lines[0].colour;
      c.globalAlpha = .22;
      c.beginPath();
      this.trace(c, lines[1].points);
      this.trace(c, lines[2].points.slice().reverse(), true);
      c.fill();
      c.globalAlpha = 1;
    }
    for (const line of this.band ? lines.slice(0, 1) : lines) {
      c.strokeStyle = line.colour;
      c.lineWidth = 1.6;
      c.beginPath();
      this.trace(c, line.points);
      c.stroke();
    }
    c.lineWidth = 1;
  }
  describe(x) {
    const now = this.seconds(x);
    const rows = this.lines().map(line => {
      let value = 0;
      for (const [s, v] of line.points) {
        if (s > now) break;
        value = v;
      }
      return `${line.label}: ${this.unit(value)}`;
    });
    return [time(now), ...rows].join('\n');
  }
}

function legend(parent, lines) {
  const made = element('p', parent);
  made.className = 'legend';
  lines.forEach((label, i) => {
    const item = element('span', made);
    element('i', item).style.background = `var(--s${i % 8})`;
    item.append(label);
  });
}

// ---- the page

function show(from, to) {
  Object.assign(view, {from, to});
  document.getElementById('whole').hidden = from === 0 && to === longest;
  charts.forEach(chart => chart.draw());
}

function finishedCurve(t) {
  const points = [[0, 0]];
  t.finishes.forEach((s, i) => points.push([s, 100 * (i + 1) / t.finishes.length]));
  return points.concat([[t.seconds, points[points.length - 1][1]]]);
}

function table(parent) {
  const made = element('table', parent);
  const head = element('tr', element('thead', made));
  for (const title of ['', 'time', 'tokens/s', 'speed-up', 'tail', 'tail share', 'responses', 'chunks', 'migrations'])
    element('th', head, title);
  const body = element('tbody', made), first = timelines[0];
  for (const t of timelines) {
    const row = element('tr', body), tail = t.seconds - t.tail_begin;
    const speed = t.tokens / t.seconds / (first.tokens / first.seconds);
    for (const text of [t.name, time(t.seconds), count(t.tokens / t.seconds), speed.toFixed(2), time(tail),
                        (100 * tail / t.seconds).toFixed(0) + ' %', count(t.requests), count(t.chunks), count(t.migrations)])
      element('td', row, text);
  }
}

function overview(parent) {
  element('h1', parent, data.title);
  element('p', parent, 'Drag across a chart to look closer, double-click for the whole. All charts have one time axis. ' +
          'The tail, shaded, is the time in which only the last 10 % of the responses are left.');
  const whole = element('button', parent, 'whole time');
  whole.id = 'whole';
  whole.hidden = true;
  whole.addEventListener('click', () => show(0, longest));
  table(parent);
  element('h3', parent, 'responses finished');
  if (timelines.length > 1) legend(parent, timelines.map(t => t.name));
  new Curves(parent, 'Share of responses finished over time', {
    lines: () => timelines.map((t, i) => ({label: t.name, colour: series(i), points: finishedCurve(t)})),
    most: 100, unit: v => v.toFixed(0) + ' %', tail: timelines.length === 1 ? timelines[0] : undefined});
}

function curveSection(parent, t, curve) {
  const same = timelines.flatMap(other => other.curves.filter(c => c.name === curve.name));
  const most = Math.max(1e-9, ...same.flatMap(c => c.lines.map(line => Math.max(0, ...line))));
  const band = curve.labels[0] === 'mean';
  element('h3', parent, curve.name + (band ? ': mean, least and most of the instances' : ''));
  if (!band && curve.labels.length > 1) legend(parent, curve.labels);
  const share = curve.name.endsWith('%');
  new Curves(parent, curve.name + ' over time: ' + t.name, {
    band, most: share ? 100 : most, tail: t, unit: v => share ? v.toFixed(0) + ' %' : String(+v.toPrecision(3)),
    lines: () => curve.lines.map((line, i) => ({
      label: curve.labels[i], colour: series(i),
      points: line.map((v, k) => [k * curve.bin, v]).concat([[t.seconds, line[line.length - 1] || 0]])}))});
}

function section(parent, t) {
  element('h2', parent, t.name);
  const parts = [`Each box is a chunk of a response, coloured by its group; strong colours: the tail. ` +
                 `A bar at the left end: it came from another instance; at the right end: the response's end.`];
  if (t.groups_drawn < t.groups) parts.push(`${count(t.groups_drawn)} of about ${count(t.groups)} groups are drawn.`);
  if (t.lanes.length < t.instances) parts.push(`${t.lanes.length} of ${count(t.instances)} instances are drawn.`);
  element('p', parent, parts.join(' '));
  new Gantt(parent, t);
  for (const curve of t.curves) curveSection(parent, t, curve);
}

const main = document.getElementById('page');
overview(main);
for (const t of timelines) section(main, t);
const redraw = () => charts.forEach(chart => chart.draw());
window.addEventListener('resize', redraw);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
redraw();
