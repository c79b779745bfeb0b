// Follows a run: asks the server whether its records have grown, and takes over the parts of the page that have changed.

const REFRESH_MS = 2000;

// What the server sent, before other scripts change it: an open player is no news.
const sources = new Map([...document.querySelectorAll("[data-live]")].map(part => [part.dataset.live, part.innerHTML]));

function isInUse(part) {
  if (part.contains(document.activeElement)) return true; // nothing changes beneath a reader
  if ([...part.querySelectorAll("audio")].some(player => !player.paused)) return true;
  return part.id === "blind" && blindTest !== null && blindTest.isUnderWay();
}

function takeOver(fresh) {
  let isWhole = true;
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (sources.get(part.dataset.live) === other.innerHTML) continue;
    if (isInUse(part)) { isWhole = false; continue; }
    sources.set(part.dataset.live, other.innerHTML);
    const opened = [...part.querySelectorAll("details[open] > summary")].map(summary => summary.textContent);
    const filters = [...part.querySelectorAll(".filters input, .filters select")].map(field => [field.id, field.value]);
    part.innerHTML = other.innerHTML;
    for (const summary of part.querySelectorAll("summary")) {
      if (opened.includes(summary.textContent)) summary.parentElement.open = true;
    }
    for (const [id, value] of filters) if (document.getElementById(id)) document.getElementById(id).value = value;
    if (part.id === "blind") blindTest = startBlindTest();
    watchSight(part);
  }
  sortRows();
  filterRows();
  return isWhole;
}

function tell(text) {
  const status = document.getElementById("live-status");
  if (status.textContent !== text) status.textContent = text; // a screen reader says what is set
}

async function refresh() {
  try {
    const state = await (await fetch("/state")).text();
    if (state !== document.body.dataset.state) {
      const text = await (await fetch("/")).text();
      const fresh = new DOMParser().parseFromString(text, "text/html");
      if (takeOver(fresh)) document.body.dataset.state = fresh.body.dataset.state;
    }
    tell("Follows the run.");
  } catch {
    tell("The server has ended; the page stays as it is.");
  }
}

setInterval(refresh, REFRESH_MS);
