"""Calls of all kinds, in each other at random, and at their ends a block: what CPython says of each block's stack is written
to the file that is the first argument, as lists of function, file and line."""
import asyncio, ctypes, functools, json, random, re, sys, threading

kept, truth = [], []


def take():
    truth.append(stack(sys._getframe())); kept.append(bytearray(1 << 20))


def stack(frame):
    frames = []
    while frame:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return frames


def plain(then):
    then()


def over_lines(then):
    plain(
        then
    )


def recursion(then, depth=5):
    return recursion(then, depth - 1) if depth else then()


def generator(then):
    def inner():
        for _ in range(2):
            yield
        yield then()
    def outer():
        yield from inner()
    list(outer())


def comprehension(then):
    [then() for _ in "x"]
    {_: 1 for _ in (then() for _ in "")}


def key(then):
    sorted("x", key=lambda _: then() or 0)


def comparison(then):
    class Value:
        def __lt__(self, other):
            then()
    sorted([Value(), Value()])


def reduced(then):
    functools.reduce(lambda a, b: then(), [1, 2])


def partial(then):
    functools.partial(over_lines, then)()


def cached(then):
    functools.lru_cache(None)(then)()


def replaced(then):
    re.sub("x", lambda _: then() or "", "x")


def hook(then):
    json.loads('{"a": 1}', object_hook=lambda _: then())


def from_c(then):
    ctypes.CFUNCTYPE(ctypes.c_int)(lambda: then() or 0)()


def failing(then):
    try:
        plain(lambda: 1 / 0)
    except ZeroDivisionError as error:
        then()
    finally:
        len("x")


def ending(then):
    class Ending:
        def __del__(self):
            then()
    it = Ending()
    del it


class Context:
    def __init__(self, then):
        self.then = then

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.then()
        return True


def context(then):
    with Context(then):
        raise KeyError


def attribute(then):
    class Owner:
        @property
        def value(self):
            then()
    Owner().value


def coroutine(then):
    async def inner():
        then()
    async def outer():
        await inner()
    try:
        outer().send(None)
    except StopIteration:
        pass


def loop(then):
    async def inner():
        await asyncio.sleep(0)
        then()
    async def outer():
        await asyncio.gather(inner(), asyncio.sleep(0))
    try:
        asyncio.get_running_loop()
        then()
    except RuntimeError:
        asyncio.run(outer())


def thread(then):
    thread = threading.Thread(target=then)
    thread.start()
    thread.join()


def näme(then):
    (lambda 数: 数())(then)


def compiled(then):
    exec("\n\ndef made(then):\n    then()\nmade(then)", {"then": then})


KINDS = [plain, over_lines, recursion, generator, comprehension, key, comparison, reduced, partial, cached, replaced, hook, from_c,
         failing, ending, context, attribute, coroutine, loop, thread, näme, compiled]


def program(number):
    choice = random.Random(number)
    then = take
    kinds = [choice.choice(KINDS) for _ in range(choice.randrange(5))]
    for kind in kinds + [KINDS[number % len(KINDS)]]:
        then = functools.partial(kind, then) if choice.random() < 0.3 else called(kind, then)
    then()


def called(kind, then):
    return lambda: kind(then)


print("ready", flush=True)
sys.stdin.readline()
for _ in range(200):
    kept.append(bytearray(300000))
for number in range(200):
    program(number)
with open(sys.argv[1], "w") as file:
    json.dump(truth, file)
print("done", flush=True)
sys.stdin.readline()
