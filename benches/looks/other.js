// A Node process in a known state: other.js STATE.
const kept = [];
const make = {
  objects() { for (let i = 0; i < 700000; i++) kept.push({ id: i, text: "text " + i }); },
  objects_freed() { make.objects(); kept.length = 1; global.gc(); global.gc(); },
  buffers() { for (let i = 0; i < 80; i++) kept.push(Buffer.alloc(1000000, 1)); },
  small_buffers() { for (let i = 0; i < 8000; i++) kept.push(Buffer.allocUnsafeSlow(10000).fill(1)); },
  small_buffers_freed() {
    make.small_buffers();
    for (let i = 0; i < kept.length; i++) if (i % 40) kept[i] = null;
    global.gc(); global.gc();
  },
  shared() { kept.push(new Uint8Array(new SharedArrayBuffer(90000000)).fill(1)); },
};
make[process.argv[2]]();
setTimeout(() => {
  const used = process.memoryUsage();
  console.log(JSON.stringify({ live: null, held: null, other: used.heapTotal, external: used.external }));
}, 200);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
