// Sound and pictures are turned into bytes when they are asked for: the page opens as fast with many clips as with few.

async function readBlob(reference, type) {
  if (!reference.startsWith("#")) {
    const answer = await fetch(reference);
    if (!answer.ok) throw new Error(`${reference}: ${answer.status}`);
    return answer.blob();
  }
  const letters = atob(document.getElementById(reference.slice(1)).textContent);
  return new Blob([Uint8Array.from(letters, letter => letter.charCodeAt(0))], { type });
}

const readSound = async reference => URL.createObjectURL(await readBlob(reference, "audio/flac"));

async function openPlayer(button) {
  const player = document.createElement("audio");
  player.controls = true;
  player.setAttribute("aria-label", button.dataset.label);
  player.src = await readSound(button.closest(".clip").dataset.sound);
  button.replaceWith(player);
  player.focus();
  await player.play().catch(() => {}); // another one was started meanwhile, or the browser wants its own button pressed
}

document.addEventListener("click", event => {
  const button = event.target.closest("button.play");
  if (button) openPlayer(button).catch(error => { button.textContent = `cannot be played: ${error.message}`; });
});

// One clip at a time.
document.addEventListener("play", event => {
  for (const player of document.querySelectorAll("audio")) if (player !== event.target) player.pause();
}, true);

async function showPicture(image) {
  image.src = URL.createObjectURL(await readBlob(image.dataset.picture, "image/png"));
}

const onSight = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    onSight.unobserve(target);
    if (target.matches("img")) showPicture(target).catch(() => target.remove());
    else drawChart(target);
  }
}, { rootMargin: "300px" });

function watchSight(root) {
  for (const target of root.querySelectorAll("img[data-picture], figure[data-chart]")) onSight.observe(target);
}
