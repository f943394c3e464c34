// Thumbnails of photographs, made by sharp, a native module (libvips).
const http = require("node:http");
const sharp = require("sharp");

async function thumbnail(number) {
  const size = 1500 + (number * 97) % 1500;
  const photograph = await sharp({
    create: { width: size, height: size, channels: 3, noise: { type: "gaussian", mean: 128, sigma: 30 } },
  }).jpeg().toBuffer();
  return sharp(photograph).rotate(number % 7).resize(400).webp().toBuffer();
}

http.createServer(async (request, response) => {
  try {
    response.end(await thumbnail(Number(request.url.split("/").pop())));
  } catch (error) {
    response.writeHead(500).end(String(error));
  }
}).listen(process.env.PORT ?? 8000, "127.0.0.1");
