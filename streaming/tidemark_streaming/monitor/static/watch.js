"use strict";
// Requests the state from the service once a second, and draws it. The page keeps nothing else, so
// a page that is opened later shows the same.

const SPANS = [["", "auto"], ["300", "5 min"], ["900", "15 min"], ["3600", "1 h"], ["21600", "6 h"],
  ["86400", "1 day"], ["604800", "7 days"]];
const $ = (id) => document.getElementById(id);
const text = (value) => String(value).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const count = (n) => n.toLocaleString("en");
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

let data = null, tag = null, ahead = 0, lost = null;

function rate(n) {
  if (n === null) return "–";
  return n >= 100 ? count(Math.round(n)) : n >= 10 ? n.toFixed(0) : n.toFixed(n >= 1 ? 1 : 2);
}

function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s === 0) return "0 s";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => s >= size);
  const [[a, large], [b, small]] = units.slice(first, first + 2);
  const rest = Math.floor((s % large) / small);
  return `${count(Math.floor(s / large))} ${a}${rest && s < 100 * large ? ` ${rest} ${b}` : ""}`;
}

function share(part) {
  if (part === null) return "–";
  return part === 0 ? "0 %" : part < 0.001 ? "< 0.1 %" : `${(part * 100).toFixed(1)} %`;
}

function size(bytes) {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(bytes, 1)) / 3));
  return `${(bytes / 1000 ** power).toFixed(power > 2 ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

const day = (ms) => new Date(ms).toISOString().slice(0, 10);
const clock = (ms, exact) => new Date(ms).toISOString().slice(11, exact ? 19 : 16);
const instant = (ms) => (ms === null ? "–" : `${day(ms)} ${clock(ms)}`);
const now = () => Date.now() + ahead;
const source = (stream) => data.sources.find((s) => s.name === stream.source);

// The lag is measured against the wall clock, or against the newest event of a recording.
function lagOf(watermark, from) {
  if (watermark === null) return null;
  return Math.max(0, (from.played ? from.clock : now()) - watermark) / 1000;
}

const last = (points) => points.findLast((p) => p !== null) ?? null;
const dagster = (path) => `${location.protocol}//${location.hostname}:${data.dagster}${path}`;

// Draw bars on the wall clock, the newest at the right; each of `series` is stacked on the one before.
function plot(said, series, classes) {
  const n = series[0].length;
  const stacked = series[0].map((_, i) => sum(series.map((s) => s[i] ?? 0)));
  const most = Math.max(...stacked, 1e-9);
  let drawn = "";
  for (let i = 0; i < n; i++) {
    let below = 0;
    series.forEach((points, k) => {
      if (points[i] === null) return;
      const height = Math.max((points[i] / most) * 36, k === 0 && stacked[i] > 0 ? 1 : 0);
      drawn += `<rect class="${classes[k]}" x="${i + 0.12}" y="${39 - below - height}" width="0.76" height="${height}"/>`;
      below += height;
    });
  }
  return `<div class="plot"><svg viewBox="0 0 ${n} 40" preserveAspectRatio="none" role="img" aria-label="${text(said)}">
    <path class="base" d="M0 39.5H${n}"/>${drawn}</svg></div>`;
}

const looksBack = () => seconds(data.span);
const most = (series) => Math.max(...series[0].map((_, i) => sum(series.map((s) => s[i] ?? 0))), 0);

const latencyOf = (from) => from.played ? "Not shown for a recording, whose events are old."
  : "From the newest event of an arrival to the end of the run that published it; the longest at each moment.";

function chart(name, value, series, classes, write, parts = "", note = parts) {
  const top = most(series);
  const said = `${name}: ${value} last${parts && ` (${parts})`}, ${write(top)} at most in the last ${looksBack()}`;
  return `<div class="chart"${note && ` title="${text(note)}"`}><div class="head"><span class="faint">${name}</span><b>${value}</b></div>
    ${plot(said, series, classes)}
    <div class="foot"><span>−${looksBack()}</span><span>${top ? `top ${write(top)}` : ""}</span><span>now</span></div></div>`;
}

// Draw the steps of the longest run at each moment; time outside of the steps comes last.
function runTime(stream) {
  const names = Object.keys(stream.steps), steps = Object.values(stream.steps);
  const rest = stream.seconds.map((s, i) => (s === null ? null : Math.max(0, s - sum(steps.map((p) => p[i])))));
  const newest = stream.seconds.findLastIndex((s) => s !== null);
  const parts = names.filter((_, k) => steps[k][newest]).map((name) => `${name} ${seconds(stream.steps[name][newest])}`);
  const classes = [...names.map((name) => `step-${name}`), "bar"];
  return chart("run time", seconds(stream.seconds[newest]), [...steps, rest], classes, seconds, parts.join(", "));
}

// Draw windows by their ends on the axis of event time. They open at the right, and become final
// as the watermark passes them.
function windows(stream) {
  const { start, end, step, together } = stream.axis;
  const head = `<div class="head"><span><b>${count(stream.open)}</b> <span class="faint">open</span></span>
    <span><b>${count(stream.published - stream.final)}</b> <span class="faint">may change</span></span>
    <span><b>${count(stream.final)}</b> <span class="faint">final</span></span>
    <span class="${stream.held ? "bad-text" : ""}"><b>${count(stream.held)}</b> ${stream.held ? "✕ " : ""}<span class="faint">quarantined</span></span></div>`;
  if (stream.watermark === null) {
    const why = stream.ended ? "The source has ended: every window is closed." : "No window yet.";
    return `<div class="chart windows">${head}<p class="faint">${why}</p></div>`;
  }
  const most = Math.max(...stream.bars.map((b) => b[1] + b[2] + b[3] + b[4]), 1);
  const x = (at) => ((at - start) / (end - start)) * 1000;
  const width = (step / (end - start)) * 1000;
  let drawn = "";
  for (const [at, ...parts] of stream.bars) {
    let below = 0;
    parts.forEach((rows, k) => {
      if (!rows) return;
      const height = Math.max((rows / most) * 50, 3), left = x(at) - width + width * 0.08, y = 56 - below - height;
      const kind = ["final", "ended", "open", "quarantined"][k];
      drawn += `<rect class="w-${kind}" x="${left}" y="${y}" width="${width * 0.84}" height="${height}"/>`;
      if (kind === "quarantined") {
        drawn += `<path class="cross" d="M${left} ${y}l${width * 0.84} ${height}m0 ${-height}l${-width * 0.84} ${height}"/>`;
      }
      below += height;
    });
  }
  const line = (kind, at) => (at > start && at <= end ? `<path class="${kind}" d="M${x(at)} 0V57"/>` : "");
  const label = (at) => (step >= 86400000 ? day(at) : `${day(at).slice(5)} ${clock(at)}`);
  const said = `Windows by their end, from ${instant(start)} to ${instant(end)}: ${stream.open} open, ` +
    `${stream.published - stream.final} published that may change, ${stream.final} final, ${stream.held} quarantined`;
  return `<div class="chart windows">${head}
    <div class="plot"><svg viewBox="0 0 1000 58" preserveAspectRatio="none" role="img" aria-label="${text(said)}">
    <path class="base" d="M0 57H1000"/>${drawn}${line("last", stream.finalBefore)}${line("mark", stream.watermark)}</svg></div>
    <div class="foot"><span>${label(start)}${together ? `, by ${seconds(step / 1000)}` : ""}</span><span class="at">${label(stream.watermark)}</span><span>${label(end)}</span></div></div>`;
}

function streamState(stream) {
  if (data.troubles[stream.name]) return ["bad", `✕ can't be read: ${data.troubles[stream.name]}`];
  const marks = { running: ["good", "● streaming"], starting: ["warn", "◔ starting"], waiting: ["bad", "✕ failed, waiting to restart"],
    "given up": ["bad", "✕ given up"], "engine down": ["bad", "✕ the engine is down"], ended: ["bad", "✕ ended"], unknown: ["warn", "? no supervisor"] };
  if (stream.state) {
    let [tone, said] = marks[stream.state] ?? ["warn", stream.state];
    if (stream.keptBy && stream.state === "running") said = { stream: "● streaming, in a terminal", ingest: "● run by its ingest" }[stream.keptBy];
    if (stream.state === "ended") said = stream.error ? "✕ ended with an error" : "✕ was killed";
    if (stream.keptBy && stream.state === "waiting") said = "✕ waiting to continue";
    return [tone, stream.restarts ? `${said} · ↻ ${count(stream.restarts)}` : said];
  }
  if (!stream.runs) return ["idle", "not run yet"];
  if (stream.behind) return ["idle", `${count(stream.behind)} arrivals behind`];
  return ["idle", stream.unfollowed ? `behind ${stream.follows}` : "up to date, no stream"];
}

function waiting(stream) {
  if (stream.limitedBy) return `${count(stream.rowsWaiting)} rows waiting, limited by ${text(stream.limitedBy)}`;
  return stream.behind && stream.state ? `${count(stream.behind)} arrivals behind` : instant(stream.watermark);
}

function row(stream) {
  const from = source(stream), [tone, said] = streamState(stream);
  const lag = stream.ended ? null : lagOf(stream.watermark, from);
  const shownLag = stream.ended ? "ended" : lag === null ? "–" : seconds(lag);
  const kind = `${stream.windows} · ${stream.follows ? `of ${stream.follows}` : `of ${stream.source}`}`;
  const notes = [stream.error && stream.state !== "running" ? stream.error : "",
    stream.restarts ? `Restarted ${stream.restarts === 1 ? "once" : `${count(stream.restarts)} times`} since it was requested.` : ""];
  const errors = notes.some(Boolean) ? ` title="${text(notes.filter(Boolean).join(" "))}"` : "";
  const lateNow = last(stream.lateShare.map((v, i) => (v === null ? null : v + (stream.tooLateShare[i] ?? 0))));
  return `<div class="name"><a href="${dagster(`/assets/${stream.name}`)}">${text(stream.name).replaceAll("_", "_<wbr>")}</a>
      <small title="${text(kind)}">${text(kind)}</small><span class="state ${tone}"${errors}>${text(said)}</span></div>
    <div class="lag"><div><b>${shownLag}</b> <small>${from.played ? "behind newest" : "behind now"}</small></div>
      ${plot(`lag of the watermark: ${shownLag}, ${seconds(most([stream.lag]))} at most in the last ${looksBack()}`, [stream.lag], ["bar"])}
      <small>${waiting(stream)}</small></div>
    ${windows(stream)}
    ${chart("events/s", rate(last(stream.rate)), [stream.rate], ["bar"], rate)}
    ${runTime(stream)}
    ${chart("latency", seconds(last(stream.latency)), [stream.latency], ["bar"], seconds, "", latencyOf(from))}
    ${chart("late + too late", share(lateNow), [stream.lateShare, stream.tooLateShare], ["late", "toolate"], share)}`;
}

const saying = (finding) => finding.cause;

// Show all findings, each with the command that settles it.
function findings() {
  const rows = data.findings.map((f) => `<tr><td><span class="state ${f.level === "error" ? "bad" : "warn"}">${f.level === "error" ? "✕" : "▲"} ${text(f.kind.replaceAll("_", " "))}</span></td>
    <td>${text(f.node)}</td><td>${text(f.cause)}</td><td>${text(f.remedy)}</td></tr>`);
  $("findings").hidden = !rows.length;
  $("findings-table").innerHTML = `<table><thead><tr><th>finding</th><th>about</th><th>cause</th><th>remedy</th></tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

function summarize() {
  const bad = data.findings.filter((f) => f.level === "error").map(saying);
  const warn = data.findings.filter((f) => f.level !== "error").map(saying);
  if (lost) bad.unshift(`the service has not answered since ${clock(lost, true)}`);
  const all = [...bad, ...warn], tone = bad.length ? "bad" : warn.length ? "warn" : "good";
  const mark = { bad: "✕", warn: "▲", good: "✓" }[tone];
  const more = all.length > 3 ? ` and ${all.length - 3} more` : "";
  $("summary").className = tone;
  const words = `${mark} ${all.length ? all.slice(0, 3).join(" · ") + more : "All is well"}`;
  if ($("summary").textContent !== words) $("summary").textContent = words;
}

function totals() {
  const wanted = data.streams.filter((s) => s.state);
  const waiting = data.sources.flatMap((s) => (s.kafka ? s.kafka.waiting.map((w) => w[2]) : []));
  const counting = data.streams.filter((s) => !s.follows), newest = {};
  counting.forEach((s) => { newest[s.source] = Math.max(newest[s.source] ?? 0, last(s.rate) ?? 0); });
  const slowest = Math.max(...data.streams.map((s) => last(s.seconds) ?? 0), 0);
  const shown = [
    [rate(sum(Object.values(newest))), "events/s, newest"],
    [count(sum(data.sources.map((s) => s.events))), "events stored"],
    [`${wanted.filter((s) => s.state === "running").length} of ${wanted.length}`, "streams running", wanted.some((s) => s.state !== "running")],
    [count(Math.max(0, ...data.streams.filter((s) => s.runs).map((s) => s.behind))), "max. arrivals behind"],
    ...(data.sources.some((s) => s.kafka) ? [[count(sum(waiting)), "Kafka lag"]] : []),
    [seconds(slowest || null), "slowest last run"],
    [count(sum(data.streams.map((s) => s.open))), "open windows"],
    [count(sum(data.streams.map((s) => s.held))), "quarantined"],
    [size(data.disk.free), "free on disk", data.findings.some((f) => f.kind === "disk_full")],
  ];
  $("totals").innerHTML = shown.map(([n, what, bad]) => `<div class="total${bad ? " bad" : ""}"><b>${n}</b><span>${what}</span></div>`).join("");
}

function quarantined() {
  const all = data.streams.flatMap((s) => s.quarantined.map((w) => ({ ...w, asset: s.name })));
  all.sort((a, b) => b.start - a.start);
  const rows = all.slice(0, 5).map((w) => `<tr><td><a href="${dagster(`/assets/${w.asset}`)}">${text(w.asset)}</a></td>
    <td>${instant(w.start)}</td><td>${text(w.keys)}</td><td>${text(w.why)}</td></tr>`);
  $("quarantined").innerHTML = rows.length
    ? `<table><thead><tr><th>asset</th><th>window</th><th>keys</th><th>failed expectations</th></tr></thead><tbody>${rows.join("")}</tbody></table>`
    : `<p class="faint">No window is quarantined.</p>`;
}

// The process that ingests a source, as [tone, text, title].
function ingestOf(s) {
  const { runs, assets, error } = s.following ?? {};
  if (s.refused) return ["bad", "✕ blocked", s.refused];
  if (s.following && !runs) return ["bad", error ? "✕ ended with an error" : "✕ was killed", error ?? "`tidemark ingest --follow` is not running, and it was not stopped."];
  const silent = s.silentSince === null ? "" : `, silent for ${seconds((now() - s.silentSince) / 1000)}`;
  if (s.following) return ["good", `● following${assets.length ? `, runs ${count(assets.length)}` : ""}${silent}`, assets.join(", ")];
  if (s.ended) return ["", "ended", ""];
  if (s.atWork) return ["good", "● running", ""];
  if (s.bySensor && data.processes.daemon) return ["", "by Dagster", `The sensor ${s.name}_landing is on.`];
  return ["", "no ingest", `tidemark ingest ${s.name} --follow, or the sensor ${s.name}_landing in Dagster`];
}

function waits(s) {
  if (s.bases.length) {
    const total = sum(s.bases.map((b) => b[1])), named = s.bases.filter((b) => b[1]).map(([name, n]) => `${name}: ${count(n)}`).join(" · ");
    return total ? `<div class="waits" title="arrivals of the bases that are not taken yet"><b>${count(total)}</b> <small>${text(named)}</small></div>` : `<span class="faint">none</span>`;
  }
  if (s.kafka === null) return `<span class="faint">files</span>`;
  if (s.kafka.trouble) return `<span class="bad-text" title="${text(s.kafka.trouble)}">✕ ${s.kafka.silent ? "brokers don't answer" : text(s.kafka.trouble)}</span>`;
  const all = s.kafka.waiting.map(([topic, n, waiting]) => [`${topic}-${n}`, waiting]).sort((a, b) => b[1] - a[1]);
  const total = sum(all.map((a) => a[1])), top = most([s.kafka.waited]);
  const named = all.slice(0, 2).map(([name, waiting]) => `${name}: ${count(waiting)}`).join(" · ") + (all.length > 2 ? ` · ${all.length - 2} more` : "");
  return `<div class="waits" title="${text(all.map(([name, waiting]) => `${name}: ${count(waiting)}`).join("\n"))}"><b>${count(total)}</b>
    ${plot(`records waiting for ${s.name}: ${count(total)} now, ${count(top)} at most in the last ${looksBack()}`, [s.kafka.waited], ["bar"])}
    <small>${text(named)}</small></div>`;
}

// The cause of a source's watermark that is far ahead of the clock; undefined if it is not.
const aheadOf = (s) => data.findings.find((f) => f.kind === "watermark_ahead" && f.node === `source ${s.name}`)?.cause;

function sources() {
  const rows = data.sources.map((s) => {
    const lag = s.ended ? "ended" : seconds(lagOf(s.watermark, s));
    const [tone, said, why] = ingestOf(s);
    return `<tr data-source="${text(s.name)}"><td><a href="${dagster(`/assets/${s.name}_log`)}">${text(s.name)}</a></td><td class="n">${count(s.events)}</td>
      <td class="n spare">${count(s.arrivals)}</td><td${aheadOf(s) ? ` class="bad-text" title="${text(aheadOf(s))}"` : ""}>${instant(s.watermark)}</td><td>${lag}</td>
      <td><span class="state ${tone}" title="${text(why)}">${said}</span></td><td>${waits(s)}</td><td class="n"${s.bases.length ? ` title="rows of the bases that take no part: ${text(s.name)}_unjoined"` : ""}>${s.bases.length ? `${count(s.unjoined)} unjoined` : count(s.deadLetters)}</td></tr>`;
  });
  const up = Object.entries(data.processes).map(([name, runs]) => `<span class="${runs ? "" : "bad-text"}">${runs ? "●" : "✕"} ${name}</span>`).join(" &nbsp; ");
  $("sources").innerHTML = `<table><thead><tr><th>source</th><th class="n">events</th><th class="n spare">arrivals</th><th>watermark</th><th>behind</th>
    <th>ingest</th><th>lag</th><th class="n">dead letters</th></tr></thead><tbody>${rows.join("")}</tbody></table><p>${up}</p>`;
}

const isLate = (sink) => data.findings.some((f) => f.kind === "sink_behind" && f.node === `asset ${sink.asset}`);

// The lag of each sink and of each pipeline of an extra.
function outputs() {
  const ended = (error) => ["bad", error ? "✕ ended with an error" : "✕ was killed"];
  const sinks = data.sinks.map((o) => {
    const [tone, said] = o.state === "ended" ? ended(o.error) : o.state === "waiting" ? ["bad", "✕ waiting"] : o.trouble ? ["bad", "✕ unknown"] : !o.behind ? ["good", "● up to date"]
      : [isLate(o) ? "bad" : "warn", `${count(o.behind)} ${o.behind === 1 ? "version" : "versions"} behind`];
    return `<tr data-topic="${text(o.topic)}"><td><a href="${dagster(`/assets/${o.asset}`)}">${text(o.asset)}</a></td><td>${text(o.topic)}</td>
      <td><span class="state ${tone}" title="${text(o.error ?? o.trouble ?? (o.state ? "Published by `tidemark sink --follow`." : ""))}">${said}</span></td><td class="n">${o.behind ? seconds(o.waits) : "–"}</td></tr>`;
  });
  const pipelines = data.pipelines.map((p) => {
    const marks = { running: ["good", "● running"], waiting: ["bad", "✕ waiting"], ended: ended(p.error) };
    const [tone, said] = marks[p.state] ?? ["", "not running"];
    const lag = p.waiting === null ? "–" : `${count(p.waiting)} records`;
    return `<tr data-pipeline="${text(p.name)}"><td>${text(p.extra)} ${text(p.name)}</td><td title="${text(p.go.join(", "))}">${text(p.come.join(", "))} → ${text(p.go[0])}${p.go.length > 1 ? " …" : ""}</td>
      <td><span class="state ${tone}" title="${text(p.error ?? "")}">${said}</span></td><td class="n" title="${text(p.trouble ?? "")}">${lag}</td></tr>`;
  });
  const rows = [...sinks, ...pipelines];
  $("outputs").hidden = !rows.length;
  $("outputs-table").innerHTML = `<table><thead><tr><th>name</th><th>topic</th><th>status</th><th class="n">behind</th></tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

const EMPTY = `<div class="empty"><p>Nothing has arrived yet.</p>
  <p><code>tidemark demo</code> streams real flights; <code>tidemark ingest SOURCE</code> ingests your own data.</p>
  <p>Then start <code>tidemark stream ASSET</code>, and its windows appear here.</p></div>`;

function draw() {
  $("clock").textContent = `${clock(now(), true)} UTC`;
  if (data === null) return;
  $("database").textContent = data.database;
  summarize(); findings(); totals(); quarantined(); sources(); outputs();
  $("streams").style.setProperty("--rows", Math.max(data.streams.length, 1));
  const main = $("streams"), focused = document.activeElement?.getAttribute?.("href");
  if (!data.sources.some((s) => s.arrivals)) { main.innerHTML = EMPTY; $("idle").innerHTML = ""; return; }
  const seen = data.streams.filter((s) => s.runs || s.state || data.troubles[s.name]);
  const idle = data.streams.filter((s) => !seen.includes(s)).map((s) => `<a href="${dagster(`/assets/${s.name}`)}">${text(s.name)}</a>`);
  seen.sort((a, b) => Boolean(b.state) - Boolean(a.state));
  main.innerHTML = seen.map((s) => `<article class="stream ${streamState(s)[0]}" data-asset="${text(s.name)}" aria-label="${text(s.name)}">${row(s)}</article>`).join("");
  $("idle").innerHTML = idle.length ? `Not run yet: ${idle.join(", ")}. <code>tidemark run ASSET</code> processes the arrivals.` : "";
  // The focused element was replaced: focus the new one.
  if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

async function ask() {
  if (document.hidden) return;
  const span = new URLSearchParams(location.search).get("span") ?? "";
  try {
    const answer = await fetch(`/state?span=${span}`, { headers: tag ? { "if-none-match": tag } : {}, signal: AbortSignal.timeout(10000) });
    ahead = Number(answer.headers.get("x-at")) - Date.now();
    if (answer.status === 200) { data = await answer.json(); tag = answer.headers.get("etag"); }
    lost = null;
  } catch { lost ??= now(); }
}

async function turn() { await ask(); draw(); setTimeout(turn, 1000); }

$("spans").innerHTML += SPANS.map(([value, name]) => `<label><input type="radio" name="span" value="${value}">${name}</label>`).join("");
const chosen = new URLSearchParams(location.search).get("span") ?? "";
($("spans").querySelector(`input[value="${CSS.escape(chosen)}"]`) ?? $("spans").querySelector("input")).checked = true;
$("spans").addEventListener("change", (event) => {
  history.replaceState(null, "", event.target.value ? `?span=${event.target.value}` : "/");
  tag = null;
  ask().then(draw);
});
turn();
