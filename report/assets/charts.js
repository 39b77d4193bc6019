// Draws the figures of a page as SVG at the width that there is, and again when that changes. Colours are the style
// sheet's. Drag zooms, arrow keys and pointer read values. Every text is set as text, never as markup.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const HEAD = 30;  // height of a panel's heading, clear of the highest tick
  const SIGNS = {
    up: "M0-6 5.5 4H-5.5z", down: "M0 6 5.5-4H-5.5z", reassign: "M0-4.5 4.5 0 0 4.5-4.5 0z",
    dot: "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0z", cross: "M-5-5 5 5M-5 5 5-5",
  };

  const add = (parent, tag, attributes, text) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return parent.appendChild(element);
  };

  // --- numbers -------------------------------------------------------------------------------------------------------

  const digits = (value) => (value === 0 ? "0" : value.toLocaleString("en", { maximumSignificantDigits: 3 }));
  const duration = (s) => (Math.abs(s) < 0.9995 ? `${digits(1000 * s)} ms` : `${digits(s)} s`);
  const percent = (slower) => `${Number((100 * (1 - slower)).toPrecision(8))} %`;
  const written = (value, axis) => {
    if (axis.scale === "tail" || axis.scale === "even") return percent(value);
    if (axis.unit === "duration") return duration(value);
    return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 1 }) + (axis.unit ? ` ${axis.unit}` : "");
  };

  // --- scales: a value's place between 0 and 1, and back --------------------------------------------------------------

  const SCALES = {
    linear: [(v) => v, (p) => p],
    log: [(v) => Math.log10(Math.max(v, 1e-9)), (p) => 10 ** p],
    tail: [(v) => -Math.log10(Math.max(v, 1e-9)), (p) => 10 ** -p],
    even: [(v) => 1 - v, (p) => 1 - p],
  };
  const place = (axis) => {
    const [to, back] = SCALES[axis.scale];
    const low = to(axis.min), high = axis.scale === "even" ? 1 : to(axis.max);
    return { at: (v) => (to(v) - low) / (high - low || 1), value: (p) => back(low + p * (high - low)) };
  };

  const ticks = (axis, px, apart) => {
    const most = Math.max(2, Math.floor(px / apart));
    if (axis.scale === "tail" || axis.scale === "even") {
      const shares = axis.scale === "even" ? [1, 0.75, 0.5, 0.25, 0] : [1, 0.5, 0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6, 1e-7];
      const named = shares.filter((v) => axis.scale === "even" || (v <= axis.min && v > axis.max * (axis.full ? 1.5 : 0.999)));
      if (axis.full && axis.scale === "tail") named.push(axis.max);
      return named.map((v) => [v, axis.full && v === axis.max ? "100 %" : percent(v)]);
    }
    if (axis.scale === "log") {
      const decades = [];
      for (let d = Math.floor(Math.log10(axis.min)); d <= Math.ceil(Math.log10(axis.max)); d++) decades.push(d);
      for (const steps of [[1, 2, 5], [1]]) {
        const found = decades.flatMap((d) => steps.map((s) => s * 10 ** d)).filter((v) => v >= axis.min && v <= axis.max);
        if (found.length <= most || steps.length === 1) {
          const every = Math.ceil(found.length / most);
          return found.filter((_, i) => i % every === 0).map((v) => [v, written(v, axis)]);
        }
      }
    }
    const rough = (axis.max - axis.min) / most, power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= rough);
    if (axis.whole) step = Math.max(1, Math.ceil(step));
    const found = [];
    for (let v = Math.ceil(axis.min / step) * step; v <= axis.max + step * 1e-6; v += step) found.push([v, digitsOf(v, step)]);
    return found;
  };
  const digitsOf = (v, step) => v.toLocaleString("en", { maximumFractionDigits: Math.max(0, -Math.floor(Math.log10(step))) });

  // --- a figure ------------------------------------------------------------------------------------------------------

  const valueAt = (line, x) => {
    let low = 0, high = line.x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (line.x[middle] <= x) low = middle + 1; else high = middle;
    }
    return low ? line.y[low - 1] : undefined;
  };

  const draw = (holder) => {
    const figure = figures[holder.dataset.figure], state = holder.state;
    const width = holder.clientWidth;
    if (!width) return;
    const names = figure.panels.flatMap((panel) => panel.heat?.names ?? ticks(panel.y, panel.height, 30).map(([, text]) => text));
    const left = 14 + 7.2 * Math.max(...names.map((text) => text.length)), right = 16, inner = width - left - right;
    const axis = { ...figure.x, ...(state.zoom ?? {}) }, x = place(axis);
    const px = (v) => x.at(v) * inner;
    const height = figure.panels.reduce((sum, panel) => sum + HEAD + panel.height + 12, 0) + 36;
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ width, height, role: "img", "aria-label": figure.label })) svg.setAttribute(name, value);
    holder.querySelector("svg")?.remove();
    holder.prepend(svg);  // before its texts are measured
    const shownTicks = ticks(axis, inner, axis.unit === "duration" ? 62 : 74);
    let top = 0;
    state.panels = figure.panels.map((panel) => {
      const yAxis = panel.y, y = place(yAxis), py = (v) => panel.height * (1 - y.at(v));
      const heading = add(svg, "text", { x: 0, y: top + 13 });
      if (panel.colour) add(svg, "rect", { x: 0, y: top + 4, width: 11, height: 11, rx: 3, fill: panel.colour });
      if (panel.title) add(heading, "tspan", { class: "title", x: panel.colour ? 18 : 0 }, panel.title);
      if (panel.title) fit(heading.lastChild, width - 34 - 7 * (yAxis.title?.length ?? 0));
      if (yAxis.title) add(heading, "tspan", { class: "unit", dx: panel.title ? 8 : 0 }, yAxis.title);
      top += HEAD;
      const frame = add(svg, "g", { transform: `translate(${left} ${top})` });
      for (const [v, text] of panel.heat ? [] : ticks(yAxis, panel.height, 30)) {
        add(frame, "line", { class: "grid", x1: 0, x2: inner, y1: py(v), y2: py(v) });
        add(frame, "text", { class: "tick", x: -8, y: py(v) + 4, "text-anchor": "end" }, text);
      }
      for (const [v] of shownTicks) add(frame, "line", { class: "grid", x1: px(v), x2: px(v), y1: 0, y2: panel.height });
      const area = add(frame, "svg", { width: inner, height: panel.height });
      for (const [from, to] of figure.bands ?? []) {
        add(area, "rect", { class: "band", x: px(from), width: Math.max(2, px(to) - px(from)), y: 0, height: panel.height });
      }
      if (panel.heat) drawHeat(area, frame, panel, px);
      for (const line of panel.lines ?? []) if (!state.hidden.has(line.name)) drawLine(area, line, px, py, panel.height);
      const points = (panel.marks ?? []).filter((mark) => !state.hidden.has(mark.name)).flatMap((mark) => mark.x.map((v, i) => ({
        x: left + px(v), y: py(mark.y[i]), inside: px(v) >= -1 && px(v) <= inner + 1, mark, text: mark.text?.[i] ?? "",
      })));
      const occupied = points.filter((point) => point.inside).map((point) => [point.x - left, point.y]);
      for (const rule of [...(figure.rules ?? []), ...(panel.rules ?? [])]) drawRule(frame, rule, px, py, inner, panel.height, panel === figure.panels[0], occupied);
      for (const point of points) if (point.inside) drawMark(frame, point, left, px, py);
      drawLabels(frame, points, left, inner, panel.height);
      const drawn = { panel, top, y, points };
      top += panel.height + 12;
      return drawn;
    });
    const foot = add(svg, "g", { transform: `translate(${left} ${top - 12})` });
    for (const [v, text] of shownTicks) add(foot, "text", { class: "tick", x: px(v), y: 17, "text-anchor": "middle" }, text);
    add(foot, "text", { class: "unit", x: inner, y: 36, "text-anchor": "end" }, figure.x.title);
    state.cross = add(svg, "line", { class: "cross", y1: 0, y2: 0 });
    state.span = add(svg, "rect", { class: "span", y: 0, height: top - 12, width: 0 });
    Object.assign(state, { axis, x, left, inner, height: top - 12 });
  };

  // Cuts a text that is too long.
  const fit = (text, most) => {
    const whole = text.textContent;
    for (let length = whole.length; length > 8 && text.getComputedTextLength() > most;) text.textContent = `${whole.slice(0, --length)}…`;
  };

  const drawLine = (area, line, px, py, height) => {
    const shift = line.shift ?? 0;
    let path = "", pen = false, first, last;
    line.x.forEach((v, i) => {
      if (line.y[i] === null) { pen = false; return; }
      const at = px(v).toFixed(1), y = (py(line.y[i]) + shift).toFixed(1);
      path += pen ? (line.step ? `H${at}V${y}` : `L${at} ${y}`) : `M${at} ${y}`;
      first ??= at; last = at; pen = true;
    });
    if (line.fill && path) add(area, "path", { d: `${path}V${height}H${first}z`, class: "area" });
    add(area, "path", {
      d: path, fill: "none", stroke: line.colour, "stroke-width": line.width ?? 2, "stroke-dasharray": line.dash,
      opacity: line.faint ? 0.35 : undefined, "stroke-linejoin": "round",
    });
  };

  const drawHeat = (area, frame, panel, px) => {
    const { x, rows, names, most } = panel.heat, high = panel.height / rows.length, levels = new Map();
    rows.forEach((row, r) => {
      for (let i = 0; i < row.length;) {
        const level = row[i] === null ? null : Math.ceil(10 * row[i] / most);
        let end = i + 1;
        while (end < row.length && (row[end] === null ? null : Math.ceil(10 * row[end] / most)) === level) end++;
        if (level !== null) {
          const from = px(x[i]), to = px(x[Math.min(end, x.length - 1)] ?? x[i]);
          const path = `M${from.toFixed(1)} ${(r * high).toFixed(1)}h${Math.max(0.5, to - from).toFixed(1)}v${(high - 1).toFixed(1)}H${from.toFixed(1)}z`;
          levels.set(level, (levels.get(level) ?? "") + path);
        }
        i = end;
      }
      add(frame, "text", { class: "tick", x: -8, y: (r + 0.5) * high + 4, "text-anchor": "end" }, names[r]);
    });
    for (const [level, d] of levels) add(area, "path", { d, class: "heat", "fill-opacity": 0.06 + 0.094 * level });
  };

  const drawRule = (frame, rule, px, py, inner, height, named, occupied) => {
    const at = rule.axis === "x" ? px(rule.at) : py(rule.at);
    if (at < 0 || at > (rule.axis === "x" ? inner : height)) return;
    const ends = rule.axis === "x" ? { x1: at, x2: at, y1: 0, y2: height } : { x1: 0, x2: inner, y1: at, y2: at };
    add(frame, "line", { ...ends, stroke: rule.colour, class: "rule" });
    if (!named) return;
    const end = rule.axis === "x" && at > 0.6 * inner, place = rule.axis === "x"
      ? { x: end ? at - 5 : at + 5, y: 14, "text-anchor": end ? "end" : "start" }
      : { x: inner - 4, y: at - 5 < 12 ? at + 15 : at - 5, "text-anchor": "end" };
    const text = add(frame, "text", { ...place, fill: rule.colour, class: "halo" }, rule.text);
    // At the other end, if a point would cover it here and none does there.
    const covered = () => {
      const box = text.getBBox();
      return occupied.some(([x, y]) => x > box.x - 9 && x < box.x + box.width + 9 && y > box.y - 9 && y < box.y + box.height + 9);
    };
    const move = (x, anchor) => { text.setAttribute("x", x); text.setAttribute("text-anchor", anchor); };
    if (rule.axis !== "x" && covered()) {
      move(4, "start");
      if (covered()) move(place.x, place["text-anchor"]);
    }
  };

  const drawMark = (frame, point, left, px, py) => {
    const { mark } = point, at = point.x - left;
    if (mark.across) {
      const [[x0, x1], [y0, y1]] = mark.across;
      add(frame, "path", { d: `M${px(x0)} ${point.y}H${px(x1)}M${at} ${py(y0)}V${py(y1)}`, stroke: mark.colour, "stroke-width": 1.5 });
    }
    const open = mark.sign === "cross" || mark.open;
    add(frame, "path", {
      class: "mark", d: SIGNS[mark.sign], transform: `translate(${at} ${point.y})`, fill: open ? "var(--paper)" : mark.colour,
      stroke: mark.colour, "stroke-width": open ? 2.4 : 0,
    });
  };

  // Names beside points, each at the first place where it meets no other name and no point.
  const drawLabels = (frame, points, left, inner, height) => {
    const taken = points.map((point) => [point.x - left - 8, point.y - 8, 16, 16]);
    for (const text of frame.querySelectorAll(".halo")) {
      const box = text.getBBox();
      taken.push([box.x, box.y, box.width, box.height]);
    }
    const free = ([x, y, w, h]) => x >= 2 && x + w <= inner + 8 && y > -22 && y + h < height + 2
      && !taken.some(([u, v, a, b]) => x < u + a && u < x + w && y < v + b && v < y + h);
    for (const point of points) {
      if (!point.mark.label) continue;
      const text = add(frame, "text", { class: "name" }, point.mark.label);
      fit(text, 0.6 * inner);
      const w = text.getComputedTextLength(), at = point.x - left;
      const places = [[11, -8], [-11 - w, -8], [-w / 2, -26], [-w / 2, 10], [11, -24], [11, 8], [-11 - w, -24], [-11 - w, 8], [11, 24], [-11 - w, 24], [-w / 2, 40], [-w / 2, -42], [-11 - w, -18], [11, -18], [-w / 2 - 30, -30], [-11 - w, 40]];
      const near = places.length;
      for (let step = 3; step < 16; step++) for (const dx of [11, -11 - w, -w / 2]) places.push([dx, -8 - 14 * step], [dx, -8 + 14 * step]);
      const most = inner + 8 - w;
      const boxes = places.map(([dx, dy], n) => [n < near ? at + dx : Math.max(2, Math.min(most, at + dx)), point.y + dy, w, 16]);
      const box = boxes.find(free) ?? boxes.find(([bx]) => bx >= -left && bx <= most) ?? boxes[0];
      if (boxes.indexOf(box) >= near) {  // far from its point
        const x2 = Math.max(box[0], Math.min(box[0] + w, at)), y2 = box[1] < point.y ? box[1] + 16 : box[1];
        add(frame, "line", { class: "leader", x1: at, y1: point.y, x2, y2 });
      }
      taken.push(box);
      text.setAttribute("x", box[0]);
      text.setAttribute("y", box[1] + 12.5);
    }
  };

  // --- reading values ------------------------------------------------------------------------------------------------

  const read = (holder, at, index, quiet) => {
    const { state } = holder, tip = holder.querySelector(".tip"), drawn = state.panels[index];
    if (!drawn) return;
    const { panel } = drawn, value = state.x.value((at - state.left) / state.inner);
    const near = drawn.points.filter((point) => point.inside && point.text && Math.abs(point.x - at) < 7).slice(0, 4);
    const lines = figures[holder.dataset.figure].pick ? [] : (panel.lines ?? [])
      .filter((line) => !line.faint && !state.hidden.has(line.name))
      .map((line) => [line.name, valueAt(line, value)])
      .filter(([, v]) => v !== undefined && v !== null)
      .map(([name, v]) => `${name}: ${written(v, panel.y)}`);
    if (panel.heat) {
      const column = valueAt({ x: panel.heat.x, y: panel.heat.x.map((_, i) => i) }, value);
      if (column !== undefined) lines.push(...panel.heat.names.map((name, r) => `${name}: ${panel.heat.rows[r][column] ?? "unknown"} events`));
    }
    const said = [...lines, ...near.map((point) => point.text)];
    state.at = { at, index };
    if (!said.length) { tip.hidden = true; state.cross.setAttribute("y2", 0); return; }
    const head = figures[holder.dataset.figure].pick ? [] : [`${panel.title && state.panels.length > 1 ? `${panel.title}, ` : ""}${written(value, state.axis)}`];
    tip.replaceChildren(...[...head, ...said].map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(at + 14, holder.clientWidth - tip.offsetWidth - 2))}px`;
    tip.style.top = `${drawn.top + 8}px`;
    for (const end of ["x1", "x2"]) state.cross.setAttribute(end, at);
    state.cross.setAttribute("y2", figures[holder.dataset.figure].pick ? 0 : state.height);
    if (!quiet) holder.querySelector(".said").textContent = [...head, ...said].join("; ");
  };

  const closest = (panels, x, y) => {
    let best = null;
    panels.forEach((drawn, index) => drawn.points.forEach((point) => {
      const far = Math.hypot(point.x - x, drawn.top + point.y - y);
      if (point.inside && far < 40 && (!best || far < best.far)) best = { far, at: point.x, index };
    }));
    return best;
  };

  const attach = (holder) => {
    const figure = figures[holder.dataset.figure];
    const state = (holder.state = { hidden: new Set(), zoom: null });
    holder.append(
      Object.assign(document.createElement("div"), { className: "tip", hidden: true }),
      Object.assign(document.createElement("div"), { className: "said" }),
    );
    holder.lastChild.setAttribute("aria-live", "polite");
    const hide = () => { holder.querySelector(".tip").hidden = true; state.cross?.setAttribute("y2", 0); };
    const where = (event) => {
      const box = holder.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
      const index = state.panels.findIndex((drawn) => y < drawn.top + drawn.panel.height + 12);
      return { x: Math.max(state.left, Math.min(state.left + state.inner, x)), y, index: index < 0 ? state.panels.length - 1 : index };
    };
    let from = null;
    holder.addEventListener("pointermove", (event) => {
      const { x, y, index } = where(event);
      if (from !== null) {
        state.span.setAttribute("x", Math.min(from, x));
        state.span.setAttribute("width", Math.abs(x - from));
      }
      const best = figure.pick && closest(state.panels, x, y);
      if (!figure.pick) read(holder, x, index, true); else if (best) read(holder, best.at, best.index, true); else hide();
    });
    holder.addEventListener("pointerleave", hide);
    holder.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button || figure.pick) return;
      from = where(event).x;
      holder.setPointerCapture(event.pointerId);
    });
    const release = (event) => {
      if (from === null) return;
      const ends = [from, where(event).x].sort((a, b) => a - b).map((at) => state.x.value((at - state.left) / state.inner));
      const wide = Math.abs(where(event).x - from) > 8;
      from = null;
      if (wide) state.zoom = { min: ends[0], max: ends[1] };
      draw(holder);
    };
    holder.addEventListener("pointerup", release);
    holder.addEventListener("pointercancel", () => { from = null; draw(holder); });
    const reset = () => { state.zoom = null; hide(); draw(holder); };
    holder.addEventListener("dblclick", reset);
    holder.addEventListener("keydown", (event) => {
      const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key], along = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (event.key === "Escape") return reset();
      if (!sideways && !(along && state.panels.length > 1)) return undefined;
      event.preventDefault();
      const last = state.at ?? { at: state.left + (sideways === -1 ? state.inner : 0), index: 0 };
      const index = Math.max(0, Math.min(state.panels.length - 1, last.index + (along ?? 0)));
      if (figure.pick) {
        const at = state.panels[0].points.map((point) => point.x).sort((a, b) => a - b);
        const next = sideways > 0 ? at.find((each) => each > last.at + 0.5) : at.findLast((each) => each < last.at - 0.5);
        return read(holder, next ?? last.at, 0);
      }
      return read(holder, Math.max(state.left, Math.min(state.left + state.inner, last.at + (sideways ?? 0) * state.inner / 60)), index);
    });
    if (figure.legend) holder.before(legend(holder, figure));
    let width = 0;
    new ResizeObserver(() => {
      if (holder.clientWidth === width) return;
      width = holder.clientWidth;
      draw(holder);
    }).observe(holder);
  };

  const legend = (holder, figure) => {
    const list = Object.assign(document.createElement("div"), { className: "legend" });
    const drawn = figure.panels.flatMap((panel) => panel.lines ?? []).filter((line) => !line.faint);
    for (const line of drawn) {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      const sample = document.createElementNS(SVG, "svg");
      for (const [name, value] of Object.entries({ width: 26, height: 10, "aria-hidden": "true" })) sample.setAttribute(name, value);
      if (line.fill) add(sample, "rect", { width: 26, height: 10, class: "area" });
      add(sample, "path", { d: line.fill ? "M0 1H26" : "M0 5H26", stroke: line.colour, "stroke-width": 2.6, "stroke-dasharray": line.dash });
      button.append(sample, line.name);
      button.setAttribute("aria-pressed", "true");
      button.title = `hide or show ${line.name}`;
      button.addEventListener("click", () => {
        const { hidden } = holder.state, shown = hidden.delete(line.name);
        if (!shown) hidden.add(line.name);
        button.setAttribute("aria-pressed", String(shown));
        draw(holder);
      });
      list.append(button);
    }
    return list;
  };

  const holders = [...document.querySelectorAll(".chart")];
  holders.forEach(attach);

  document.querySelectorAll(".switch button").forEach((button) => {
    button.addEventListener("click", () => {
      const holder = document.querySelector(`.chart[data-figure="${button.dataset.figure}"]`);
      figures[button.dataset.figure].panels[0].y.scale = button.dataset.scale;
      button.parentElement.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      draw(holder);
    });
  });

  // Paper shows what is folded, too.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
})();
