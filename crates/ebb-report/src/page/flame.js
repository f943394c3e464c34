// The flame graph: boxes from [names, root]; a node is [number of its name, still there, allocated, children]. The table below is whole without it.
"use strict";
(() => {
  const ROW = 20;
  const [names, root] = JSON.parse(document.getElementById("data").textContent);
  const flame = document.getElementById("flame");
  const about = document.getElementById("about");
  const search = document.getElementById("search");
  const buttons = [...document.querySelectorAll(".tools button")];
  let value = 1;
  let path = [root];

  const size = (node) => Math.max(node[value], 0);
  const words = (node) => {
    const mb = (bytes) => (bytes / 1e6).toFixed(2);
    const share = size(root) > 0 ? (size(node) / size(root)) * 100 : 0;
    return `${names[node[0]]}: ${mb(node[1])} MB still there, ${mb(node[2])} MB allocated, ${share.toFixed(1)} % of all`;
  };

  const box = (node, depth, from, width, steps, above) => {
    const element = document.createElement("button");
    element.type = "button";
    element.textContent = names[node[0]];
    element.title = words(node);
    Object.assign(element.style, { left: `${from * 100}%`, width: `${width * 100}%`, top: `${depth * ROW}px` });
    const text = search.value.toLowerCase();
    element.classList.toggle("found", text !== "" && names[node[0]].toLowerCase().includes(text));
    element.classList.toggle("above", above);
    element.addEventListener("click", () => { path = steps; draw(); });
    for (const event of ["pointerenter", "focus"]) {
      element.addEventListener(event, () => { about.textContent = words(node); });
    }
    flame.append(element);
  };

  const draw = () => {
    flame.replaceChildren();
    // Narrower than two pixels nobody sees anything.
    const least = 2 / Math.max(flame.clientWidth, 320);
    let deepest = path.length;
    path.slice(0, -1).forEach((node, depth) => box(node, depth, 0, 1, path.slice(0, depth + 1), true));
    const todo = [[path.at(-1), path.length - 1, 0, 1, path]];
    while (todo.length > 0) {
      const [node, depth, from, width, steps] = todo.pop();
      box(node, depth, from, width, steps, false);
      deepest = Math.max(deepest, depth + 1);
      let at = from;
      for (const child of [...node[3]].sort((a, b) => size(b) - size(a))) {
        const part = size(node) > 0 ? (size(child) / size(node)) * width : 0;
        if (part < least) continue;
        todo.push([child, depth + 1, at, part, [...steps, child]]);
        at += part;
      }
    }
    flame.style.height = `${deepest * ROW}px`;
    about.textContent = words(path.at(-1));
  };

  for (const button of buttons) {
    button.addEventListener("click", () => {
      value = Number(button.dataset.value) + 1;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      draw();
    });
  }
  search.addEventListener("input", draw);
  addEventListener("resize", draw);
  if (size(root) === 0) buttons[1].click();
  draw();
})();
