<?php
// A program that PHP starts.
proc_close(proc_open(['sleep', '30'], [], $pipes));
