// The values under the pointer, and one line at a time by the legend. The page is whole without it.
"use strict";
(() => {
  const figure = document.getElementById("plot");
  const readout = document.getElementById("readout");
  const data = JSON.parse(document.getElementById("lines").textContent);
  const chosen = new Set();

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const variant = button.dataset.v;
      const on = !chosen.delete(variant);
      if (on) chosen.add(variant);
      button.setAttribute("aria-pressed", String(on));
      figure.classList.toggle("chosen", chosen.size > 0);
      for (const part of figure.querySelectorAll("[data-v]")) {
        part.classList.toggle("on", chosen.has(part.dataset.v));
      }
    });
  }

  for (const plot of figure.querySelectorAll("svg.plot")) {
    const cross = plot.querySelector(".cross");
    const width = plot.viewBox.baseVal.width;
    const left = Number(plot.dataset.left);
    const span = width - left - Number(plot.dataset.right);

    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * width;
      const share = (x - left) / span;
      if (share < 0 || share > 1) return hide();
      cross.setAttribute("x1", x);
      cross.setAttribute("x2", x);
      cross.removeAttribute("hidden");
      const rows = data.lines
        .filter((line) => chosen.size === 0 || chosen.has(String(line.variant)))
        .map((line) => ({ name: line.name, mb: line.mb[Math.round(share * (line.mb.length - 1))] }))
        .sort((one, other) => other.mb - one.mb)
        .map((row) => `${row.mb.toFixed(1).padStart(7, "\u2007")} MB  ${row.name}`);
      readout.textContent = [`at ${(share * data.end_s).toFixed(1)} s`, ...rows].join("\n");
      readout.hidden = false;
      readout.style.right = share < 0.5 ? "12px" : "auto";
      readout.style.left = share < 0.5 ? "auto" : "12px";
    });

    const hide = () => {
      readout.hidden = true;
      cross.setAttribute("hidden", "");
    };
    plot.addEventListener("pointerleave", hide);
  }
})();
