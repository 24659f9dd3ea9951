"use strict";
// Draws the page from the JSON beside it. Text of the run goes through textContent only, never through markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const draw = (tag, attributes = {}, text = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text) node.textContent = text;
    return node;
  };
  const number = (value, digits = 4) =>
    value === null || value === undefined ? "—" : Math.abs(value) >= 1e5 ? value.toExponential(2) : String(+value.toPrecision(digits));
  const percent = (value) => `${number(100 * value, 3)} %`;

  // ---- light and dark
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("soliton-theme"); } catch { chosen = null; }
  const applyTheme = () => {
    const theme = chosen ?? (system.matches ? "dark" : "light");
    root.dataset.theme = theme;
    $("theme").textContent = theme === "dark" ? "☀ light" : "☾ dark";
  };
  system.addEventListener("change", applyTheme);
  $("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("soliton-theme", chosen); } catch { /* a file may have no storage */ }
    applyTheme();
  });
  applyTheme();

  // ---- curves
  const niceTicks = (low, high, count) => {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(+(i * step).toPrecision(12));
    return ticks;
  };
  const smoothed = (values) => {
    const half = Math.max(1, Math.round(values.length / 30));
    return values.map((_, i) => {
      const near = values.slice(Math.max(0, i - half), i + half + 1);
      return near.reduce((a, b) => a + b, 0) / near.length;
    });
  };
  const showTip = (text, x, y) => {
    const tip = $("tip");
    tip.textContent = text;
    tip.hidden = false;
    const width = tip.offsetWidth;
    tip.style.left = `${Math.max(4, Math.min(x + 14, scrollX + innerWidth - width - 24))}px`;
    tip.style.top = `${y + 16}px`;
  };
  const hideTip = () => { $("tip").hidden = true; };

  const chart = (panel, [width, height]) => {
    const left = 54, right = 10, top = 8, bottom = 22;
    const show = panel.share ? percent : number;
    const xs = panel.series.flatMap((s) => s.x);
    let ys = panel.series.flatMap((s) => s.y).concat((panel.whiskers ?? []).flatMap((w) => [w.low, w.high]));
    if (panel.line && panel.line.y <= 2.5 * Math.max(...ys)) ys = ys.concat(panel.line.y);
    let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    if (x0 === x1) { x0 -= 1; x1 += 1; }
    let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
    if (panel.zero) { y0 = Math.min(0, y0); y1 = Math.max(0, y1); }
    if (y0 === y1) { y0 -= panel.zero && y0 >= 0 ? 0 : Math.abs(y0) / 2 || 1; y1 += Math.abs(y1) / 2 || 1; }
    const pad = (y1 - y0) * 0.06;
    y1 += pad;
    if (!(panel.zero && y0 === 0)) y0 -= pad;
    if (panel.marks && panel.share) { y0 = 0; y1 = 1; }
    const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
    const py = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": panel.title });
    for (const y of niceTicks(y0, y1, 4)) {
      svg.append(draw("line", { class: "gridline", x1: left, x2: width - right, y1: py(y), y2: py(y) }));
      svg.append(draw("text", { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, panel.share ? `${number(100 * y, 3)} %` : number(y, 3)));
    }
    for (const x of niceTicks(x0, x1, 5).filter(Number.isInteger)) {
      svg.append(draw("text", { x: px(x), y: height - 6, "text-anchor": "middle" }, number(x, 6)));
    }
    const axis = y0 < 0 && y1 > 0 ? 0 : y0;
    svg.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: py(axis), y2: py(axis) }));
    if (panel.line && panel.line.y <= y1) {
      svg.append(draw("line", { class: "bound", x1: left, x2: width - right, y1: py(panel.line.y), y2: py(panel.line.y) }));
      svg.append(draw("text", { x: width - right, y: py(panel.line.y) - 4, "text-anchor": "end" }, panel.line.label));
    }
    for (const w of panel.whiskers ?? []) {
      svg.append(draw("line", { class: "s0", "stroke-width": 3, opacity: 0.45, x1: px(w.x), x2: px(w.x), y1: py(w.low), y2: py(w.high) }));
    }
    panel.series.forEach((s, i) => {
      const line = (values) => values.map((y, k) => `${k ? "L" : "M"}${px(s.x[k]).toFixed(1)} ${py(y).toFixed(1)}`).join("");
      const few = s.y.length < 20 || panel.marks;
      svg.append(draw("path", { class: `raw s${i} ${few ? "alone" : ""}`, d: line(s.y) }));
      if (!few) svg.append(draw("path", { class: `smooth s${i}`, d: line(smoothed(s.y)) }));
      if (panel.marks || s.y.length < 8) s.y.forEach((y, k) => svg.append(draw("circle", { class: `s${i}`, cx: px(s.x[k]), cy: py(y), r: 3 })));
    });
    const cursor = draw("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
    const dots = panel.series.map((_, i) => draw("circle", { class: `s${i}`, r: 3.5, visibility: "hidden" }));
    svg.append(cursor, ...dots);
    const steps = [...new Set(xs)].sort((a, b) => a - b);
    let at = steps.length - 1;
    const point = (x) => {
      cursor.setAttribute("visibility", "visible");
      cursor.setAttribute("x1", px(x));
      cursor.setAttribute("x2", px(x));
      const lines = [`step ${x}`];
      panel.series.forEach((s, i) => {
        const k = s.x.indexOf(x);
        dots[i].setAttribute("visibility", k < 0 ? "hidden" : "visible");
        if (k < 0) return;
        dots[i].setAttribute("cx", px(x));
        dots[i].setAttribute("cy", py(s.y[k]));
        lines.push(`${s.label}  ${show(s.y[k])}`);
      });
      for (const w of panel.whiskers ?? []) if (w.x === x) lines.push(`95 % interval  ${number(w.low, 3)} to ${number(w.high, 3)}`);
      const box = svg.getBoundingClientRect();
      showTip(lines.join("\n"), scrollX + box.left + (px(x) / width) * box.width, scrollY + box.top + 8);
    };
    const leave = () => { hideTip(); [cursor, ...dots].forEach((node) => node.setAttribute("visibility", "hidden")); };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = x0 + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (x1 - x0);
      at = steps.reduce((best, s, i) => (Math.abs(s - x) < Math.abs(steps[best] - x) ? i : best), 0);
      point(steps[at]);
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      at = Math.max(0, Math.min(steps.length - 1, at + move));
      point(steps[at]);
    });
    return svg;
  };
  const figure = (panel, size, withNote) => {
    const node = make("figure", {}, make("figcaption", {}, panel.title), chart(panel, size));
    if (panel.series.length > 1) {
      const keys = panel.series.map((s, i) => make("span", {}, make("i", { class: `s${i}` }), s.label));
      node.append(make("p", { class: "keys" }, ...keys));
    }
    if (panel.note && withNote) node.append(make("p", { class: "note" }, panel.note));
    else if (panel.note) node.title = panel.note;
    return node;
  };
  $("panels").append(...data.panels.map((panel) => figure(panel, [380, 190], true)));
  if (!data.panels.length) $("curves").hidden = true;
  if (!data.others.length) $("everything").hidden = true;
  document.querySelector("#everything details").addEventListener("toggle", () => {
    if (!$("others").childElementCount) $("others").append(...data.others.map((panel) => figure(panel, [280, 130], false)));
  });

  // ---- configuration
  $("only-changed")?.addEventListener("change", (event) => $("settings").classList.toggle("only-changed", event.target.checked));

  // ---- trajectories
  const steps = data.browser.steps;
  if (!steps.length) {
    $("browser").hidden = true;
    $("no-examples").hidden = false;
    return;
  }
  const ROLES = ["template", "observation", "action"];
  const COLOURS = ["role", "advantage", "ratio", "value", "version"];
  const state = { step: 0, example: 0, token: 0, colour: "role" };
  const example = () => steps[state.step].examples[state.example];
  const ratioOf = (e, i) => (e.now && e.then[i] !== null ? Math.exp(e.now[i] - e.then[i]) : null);
  const largest = (values) => Math.max(1e-9, ...values.filter((v) => v !== null).map(Math.abs));
  const tint = (name, strength) => `rgb(var(--${name}) / ${Math.round(12 + 68 * Math.min(1, strength))}%)`;

  const background = (e, i, scale) => {
    if (e.roles[i] !== "2") return "";
    if (state.colour === "advantage") return e.advantages[i] ? tint(e.advantages[i] > 0 ? "positive" : "negative", Math.abs(e.advantages[i]) / scale) : "";
    if (state.colour === "ratio" && e.now) {
      const log = e.now[i] - e.then[i];
      return Math.abs(log) < 1e-4 ? "" : tint(log > 0 ? "warm" : "cold", Math.abs(log) / scale);
    }
    if (state.colour === "value" && e.values) return tint(e.values[i] >= 0 ? "positive" : "negative", Math.abs(e.values[i]) / scale);
    if (state.colour === "version") return tint("cold", (e.versions[i] - scale.low + 1) / (scale.high - scale.low + 1));
    return "";
  };
  const scaleOf = (e) => {
    const actions = [...e.roles].flatMap((role, i) => (role === "2" ? [i] : []));
    if (state.colour === "advantage") return largest(actions.map((i) => e.advantages[i]));
    if (state.colour === "ratio" && e.now) return largest(actions.map((i) => e.now[i] - e.then[i]));
    if (state.colour === "value" && e.values) return largest(actions.map((i) => e.values[i]));
    const versions = actions.map((i) => e.versions[i]);
    return { low: Math.min(...versions), high: Math.max(...versions) };
  };
  const swatch = (text, attributes, style = "") => {
    const colour = make("i", attributes);
    if (style) colour.style.background = style;
    return make("span", {}, colour, text);
  };
  const legend = (e, scale) => {
    const outside = swatch("outside the trust band", { class: "out" });
    const ramp = (name, text) => swatch(text, { class: "ramp" }, `linear-gradient(90deg, ${tint(name, 0)}, ${tint(name, 1)})`);
    const items = {
      role: () => ROLES.map((role, i) => swatch(role, { class: `t${i}` })),
      advantage: () => [ramp("positive", `advantage up to ${number(scale, 3)}`), ramp("negative", `down to −${number(scale, 3)}`)],
      ratio: () => (e.now ? [ramp("warm", `likelier now, ratio up to ${number(Math.exp(scale), 3)}`), ramp("cold", "less likely now")] : ["the actor was not run in this step"]),
      value: () => (e.values ? [ramp("positive", `value up to ${number(scale, 3)}`), ramp("negative", "below 0")] : ["this method has no critic"]),
      version: () => [ramp("cold", `version ${scale.low} to ${scale.high}, newer is darker`)],
    }[state.colour]();
    $("legend").replaceChildren(...items, outside);
  };
  const facts = (i) => {
    const e = example(), action = e.roles[i] === "2", ratio = action ? ratioOf(e, i) : null;
    const side = action && e.sides ? { "0": "inside", "+": "over", "-": "under" }[e.sides[i]] : "—";
    const position = e.cut_at !== null && i >= e.cut_at ? i + e.tokens - e.pieces.length : i;
    const of = (column) => (action && column ? number(column[i]) : "—");
    const [low, high] = steps[state.step].band;
    const rows = [
      ["token", `${position} of ${e.tokens}  ${JSON.stringify(e.pieces[i])}`],
      ["role", ROLES[e.roles[i]]],
      ["version", action ? e.versions[i] : "—"],
      ["log-prob at sampling", of(e.then)],
      ["log-prob now", of(e.now)],
      ["ratio", number(ratio)],
      [`band (${number(low, 3)}, ${number(high, 3)})`, side],
      ["value", of(e.values)],
      ["advantage", of(e.advantages)],
      ["reward", e.rewards[i] ? number(e.rewards[i]) : "—"],
    ];
    $("token").replaceChildren(...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
  };
  const select = (i, scroll) => {
    const tokens = $("tokens");
    tokens.querySelector(".at")?.classList.remove("at");
    state.token = Math.max(0, Math.min(example().pieces.length - 1, i));
    const node = tokens.querySelector(`[data-i="${state.token}"]`);
    node.classList.add("at");
    if (scroll) tokens.scrollTop = Math.max(0, node.offsetTop - tokens.clientHeight / 2);
    facts(state.token);
  };
  const showTokens = () => {
    const e = example(), scale = scaleOf(e), nodes = [];
    for (let i = 0; i < e.pieces.length; i++) {
      if (i === e.cut_at) nodes.push(make("span", { class: "gap" }, `\n… ${e.tokens - e.pieces.length} tokens left out …\n`));
      const outside = e.sides && e.sides[i] !== "0";
      const node = make("span", { "data-i": i, class: `t${e.roles[i]}${outside ? " out" : ""}${state.colour === "role" ? "" : " plain"}` });
      node.textContent = e.pieces[i].replaceAll("\n", "⏎\n") || "∅";
      const colour = state.colour === "role" ? "" : background(e, i, scale);
      if (colour) node.style.background = colour;
      if (e.rewards[i]) {
        node.classList.add("paid");
        node.classList.toggle("cost", e.rewards[i] < 0);
        node.dataset.reward = `${e.rewards[i] > 0 ? "+" : "−"}${number(Math.abs(e.rewards[i]), 3)}`;
      }
      nodes.push(node);
    }
    $("tokens").replaceChildren(...nodes);
    legend(e, scale);
    const ended = e.reason ? `${e.status} (${e.reason})` : e.status;
    $("about").textContent = `attempt ${e.attempt} · prompt ${e.prompt} · ${ended} · ${e.tokens} tokens`;
    const first = e.roles.indexOf("2");
    select(state.token || Math.max(0, first), false);
  };
  const showList = () => {
    const entries = steps[state.step].examples.map((e, i) => {
      const actions = [...e.roles].filter((role) => role === "2").length;
      const masked = e.outside === null ? "" : ` · outside ${e.outside}${e.cut_at === null ? `/${actions}` : ""}`;
      const entry = make("button", { type: "button", role: "option", "aria-selected": i === state.example });
      entry.append(make("b", {}, e.why.join(", ")), make("small", {}, `reward ${number(e.reward, 3)} · stale ${e.staleness}${masked}`));
      entry.addEventListener("click", () => { go(state.step, i); $("list").children[i].focus(); });
      return entry;
    });
    $("list").replaceChildren(...entries);
    $("step").value = state.step;
  };
  const go = (step, index) => {
    state.step = Math.max(0, Math.min(steps.length - 1, step));
    state.example = Math.max(0, Math.min(steps[state.step].examples.length - 1, index));
    state.token = 0;
    showList();
    showTokens();
    $("tokens").scrollTop = 0;
  };
  const goToStep = (step) => {
    const wanted = example().why[0], target = steps[Math.max(0, Math.min(steps.length - 1, step))];
    const same = target.examples.findIndex((e) => e.why.includes(wanted));
    go(step, Math.max(0, same));
  };
  const colourBy = (name) => {
    state.colour = name;
    for (const button of $("colours").children) button.setAttribute("aria-checked", button.dataset.colour === name);
    showTokens();
  };
  $("colours").append(...COLOURS.map((name) => {
    const button = make("button", { type: "button", role: "radio", "aria-checked": name === "role", "data-colour": name }, name);
    button.addEventListener("click", () => colourBy(name));
    return button;
  }));
  $("step").append(...steps.map((step, i) => make("option", { value: i }, `step ${step.step}`)));
  $("step").addEventListener("change", (event) => goToStep(+event.target.value));
  $("step-before").addEventListener("click", () => goToStep(state.step - 1));
  $("step-after").addEventListener("click", () => goToStep(state.step + 1));
  const tokenAt = (event) => event.target.closest("[data-i]")?.dataset.i;
  $("tokens").addEventListener("pointerover", (event) => { const i = tokenAt(event); if (i !== undefined) facts(+i); });
  $("tokens").addEventListener("pointerleave", () => facts(state.token));
  $("tokens").addEventListener("click", (event) => { const i = tokenAt(event); if (i !== undefined) select(+i, false); });
  $("browser").addEventListener("keydown", (event) => {
    if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowLeft: () => select(state.token - 1, true),
      ArrowRight: () => select(state.token + 1, true),
      ArrowUp: () => go(state.step, state.example - 1),
      ArrowDown: () => go(state.step, state.example + 1),
      PageUp: () => goToStep(state.step - 1),
      PageDown: () => goToStep(state.step + 1),
    };
    const action = actions[event.key] ?? (COLOURS[event.key - 1] && (() => colourBy(COLOURS[event.key - 1])));
    if (!action) return;
    event.preventDefault();
    const inList = $("list").contains(event.target);
    action();
    if (inList) $("list").children[state.example].focus();
  });
  go(steps.length - 1, 0);
})();
