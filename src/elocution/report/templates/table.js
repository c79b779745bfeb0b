// The table of sentences: sorted by a column's head, filtered by text and by what became of them.

const sorting = { column: null, ascending: true };

function sortRows() {
  const table = document.getElementById("prompt-table");
  if (!table || sorting.column === null) return;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const order = sorting.ascending ? "ascending" : "descending";
    head.setAttribute("aria-sort", column === sorting.column ? order : "none");
  });
  const body = table.tBodies[0], isText = sorting.column === 0, way = sorting.ascending ? 1 : -1;
  const keyed = [...body.rows].map(row => [row.cells[sorting.column].dataset.value, row]);
  keyed.sort(([one], [other]) => {
    if (one === "" || other === "") return (one === "") - (other === ""); // what was not measured comes last
    return way * (isText ? one.localeCompare(other) : one - other);
  });
  body.append(...keyed.map(([, row]) => row));
}

const KINDS = {
  all: () => true,
  wrong: row => Number(row.dataset.last) > 0,
  better: row => Number(row.dataset.change) < 0,
  worse: row => Number(row.dataset.change) > 0,
};

function filterRows() {
  const table = document.getElementById("prompt-table");
  if (!table) return;
  const wanted = document.getElementById("filter-text").value.trim().toLowerCase();
  const isKind = KINDS[document.getElementById("filter-kind").value];
  const rows = [...table.tBodies[0].rows];
  const said = row => [row.cells[0], ...row.querySelectorAll(".heard")].map(part => part.textContent).join(" ");
  for (const row of rows) row.hidden = !isKind(row) || !said(row).toLowerCase().includes(wanted);
  const shown = rows.filter(row => !row.hidden).length;
  document.getElementById("filter-count").textContent = `${shown} of ${rows.length} sentences`;
}

document.addEventListener("click", event => {
  const head = event.target.closest("#prompt-table button.sort")?.closest("th");
  if (!head) return;
  sorting.ascending = sorting.column === head.cellIndex ? !sorting.ascending : true;
  sorting.column = head.cellIndex;
  sortRows();
});
for (const kind of ["input", "change"]) {
  document.addEventListener(kind, event => { if (event.target.closest(".filters")) filterRows(); });
}
document.addEventListener("submit", event => event.preventDefault());

watchSight(document);
filterRows();
