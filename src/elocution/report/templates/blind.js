// Which of two is better, without knowing which is which.

function startBlindTest() {
  const stage = document.getElementById("blind-stage");
  if (!stage) return null;
  const { run, sides, pairs } = JSON.parse(document.getElementById("blind-pairs").textContent);
  const show = (id, text) => { document.getElementById(id).textContent = text; };
  const player = new Audio();
  const votes = [];
  let heard = new Set();

  // Fisher and Yates; `first` is the side that is played as 1.
  const order = pairs.map(pair => ({ ...pair, first: Math.random() < 0.5 ? 0 : 1 }));
  for (let last = order.length - 1; last > 0; last--) {
    const place = Math.floor(Math.random() * (last + 1));
    [order[last], order[place]] = [order[place], order[last]];
  }

  function update() {
    const pair = order[votes.length], isOver = pair === undefined;
    show("blind-status", isOver ? "All pairs are judged." : `Pair ${votes.length + 1} of ${order.length}`);
    show("blind-text", isOver ? "" : pair.text);
    for (const button of stage.querySelectorAll("[data-play]")) button.disabled = isOver;
    for (const button of stage.querySelectorAll("[data-choice]")) button.disabled = isOver || heard.size < 2;
    document.getElementById("blind-undo").disabled = votes.length === 0;
    document.getElementById("blind-save").disabled = votes.length === 0;
    show("blind-result", isOver ? describe() : "");
  }

  async function play(place) {
    const pair = order[votes.length];
    if (!pair) return;
    player.src = await readSound(pair.sounds[place === 0 ? pair.first : 1 - pair.first]);
    await player.play();
    heard.add(place);
    update();
  }

  function choose(place) {
    const pair = order[votes.length];
    if (!pair || heard.size < 2) return;
    const side = place === "none" ? null : sides[place === "0" ? pair.first : 1 - pair.first];
    votes.push({ utterance_id: pair.utterance_id, text: pair.text, first: sides[pair.first], choice: side });
    player.pause();
    heard = new Set();
    update();
    if (votes.length < order.length) stage.focus();
  }

  // Wilson's 95 % interval of a share, as `elocution preference` computes it.
  function interval(successes, total) {
    const z = 1.959963984540054, share = successes / total, scale = 1 + z * z / total;
    const middle = (share + z * z / (2 * total)) / scale;
    const reach = z / scale * Math.sqrt(share * (1 - share) / total + z * z / (4 * total * total));
    return [middle - reach, middle + reach];
  }

  function describe() {
    const decided = votes.filter(vote => vote.choice !== null).length;
    const preferred = votes.filter(vote => vote.choice === sides[1]).length;
    const rest = `${votes.length - decided} without a preference`;
    if (!decided) return `No preference in ${votes.length} pairs.`;
    const [low, high] = interval(preferred, decided).map(share => (100 * share).toFixed(1));
    const share = (100 * preferred / decided).toFixed(1);
    return `“${sides[1]}” preferred over “${sides[0]}” in ${preferred} of ${decided} pairs: ${share} % [${low}, ${high}]; ${rest}.`;
  }

  function save() {
    const content = { format: "elocution-preference-1", run, sides, saved_at: new Date().toISOString(), votes };
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(content, null, 2)], { type: "application/json" }));
    link.download = `preference-${run}.json`;
    link.click();
  }

  function undo() {
    if (!votes.pop()) return;
    heard = new Set();
    update();
  }

  stage.addEventListener("click", event => {
    const { play: place, choice } = event.target.dataset;
    if (place !== undefined) play(Number(place));
    else if (choice !== undefined) choose(choice);
    else if (event.target.id === "blind-undo") undo();
    else if (event.target.id === "blind-save") save();
  });
  const keys = {
    1: () => play(0), 2: () => play(1), Backspace: undo,
    ArrowLeft: () => choose("0"), ArrowRight: () => choose("1"), ArrowDown: () => choose("none"),
  };
  stage.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  update();
  return { isUnderWay: () => votes.length > 0 || heard.size > 0 };
}

let blindTest = startBlindTest();
