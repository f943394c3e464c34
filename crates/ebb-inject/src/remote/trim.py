# Written by `ebb trim`, run by this process's own remote execution (PEP 768); see docs/trim.md.
import _thread


def say(line):
    with open(PATH, "a") as file:
        file.write("# " + line + "\n")


def trim():
    try:
        say("began")
        import ctypes, time
        # A notice of a signal or of a pending call may have been lost when this script was asked for:
        # the main thread looks again, in its own code.
        api = ctypes.pythonapi
        api.Py_AddPendingCall(api.PyErr_CheckSignals, None)
        malloc_trim = ctypes.CDLL(None).malloc_trim
        malloc_trim.argtypes = [ctypes.c_size_t]
        start = time.monotonic()
        malloc_trim(0)
        say("trimmed %.9f" % (time.monotonic() - start))
    except BaseException as error:
        say("failed %s: %s" % (type(error).__name__, error))


# In a thread of its own: the main one is not kept, and what a signal's handler raises is not raised in here.
try:
    _thread.start_new_thread(trim, ())
except RuntimeError as error:
    say("failed %s: %s" % (type(error).__name__, error))
