// Curves, in the colours of the page.

const figureOf = holder => JSON.parse(holder.querySelector(".figure").textContent);

function dressed(layout) {
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true };
  return {
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--soft"), size: 12, family: "system-ui, sans-serif" },
    hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") }, namelength: -1 },
    hovermode: "x unified",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    margin: { l: 40, r: 8, t: 8, b: 32 },
  };
}

// The library is large: it is compiled when the first curve comes into sight.
function loadPlotly() {
  if (window.Plotly) return;
  const script = document.createElement("script");
  script.textContent = document.getElementById("plotly").textContent;
  document.head.append(script);
}

function drawChart(holder) {
  loadPlotly();
  const { data, layout } = figureOf(holder);
  Plotly.react(holder.querySelector(".chart"), data, dressed(layout), { displayModeBar: false, responsive: true });
  holder.dataset.drawn = "yes";
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const holder of document.querySelectorAll("figure[data-drawn]")) drawChart(holder);
});

function listValues(holder) {
  const { data } = figureOf(holder);
  const steps = [...new Set(data.flatMap(curve => curve.x))].sort((one, other) => one - other);
  const table = document.createElement("table");
  const fill = (row, kind, texts) => texts.forEach((text, place) => {
    const cell = document.createElement(place ? kind : "th");
    if (cell.matches("th")) cell.scope = kind === "th" ? "col" : "row";
    cell.textContent = text;
    row.append(cell);
  });
  fill(table.createTHead().insertRow(), "th", ["step", ...data.map(curve => curve.name)]);
  const body = table.createTBody();
  for (const step of steps) {
    const values = data.map(curve => curve.x.includes(step) ? curve.y[curve.x.indexOf(step)].toPrecision(4) : "–");
    fill(body.insertRow(), "td", [step, ...values]);
  }
  return table;
}

document.addEventListener("toggle", event => {
  const details = event.target;
  if (details.matches(".values") && details.open && !details.querySelector("table")) {
    details.append(listValues(details.closest("figure")));
  }
}, true);
