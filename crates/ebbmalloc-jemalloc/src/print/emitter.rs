//! The two ways in which statistics are written: a JSON document, or words and tables. What belongs to the
//! other way is passed over.
//!
//! Nothing here is inlined: the hundred places that print would be 36 kB larger.

use core::ffi::CStr;
use core::fmt::{self, Display, Write};

/// Bytes that are handed on at once.
const PIECE_BYTES: usize = 1024;

/// See the module.
pub struct Emitter<'a> {
    sink: &'a mut dyn FnMut(&CStr),
    json: bool,
    /// The next item of the JSON document is not the first in its object or array.
    follows: bool,
    piece: [u8; PIECE_BYTES],
    length: usize,
}

impl Write for Emitter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            // The last byte is for the NUL; there is none within.
            if self.length == PIECE_BYTES - 1 {
                self.flush();
            }
            if byte != 0 {
                self.piece[self.length] = byte;
                self.length += 1;
            }
        }
        Ok(())
    }
}

impl<'a> Emitter<'a> {
    /// Writes to `sink`, as JSON or in words.
    pub fn new(sink: &'a mut dyn FnMut(&CStr), json: bool) -> Self {
        Self { sink, json, follows: false, piece: [0; PIECE_BYTES], length: 0 }
    }

    /// Whether a JSON document is written.
    pub fn is_json(&self) -> bool {
        self.json
    }

    fn flush(&mut self) {
        self.piece[self.length] = 0;
        if let Ok(text) = CStr::from_bytes_until_nul(&self.piece) {
            (self.sink)(text);
        }
        self.length = 0;
    }

    #[inline(never)]
    fn write(&mut self, text: fmt::Arguments<'_>) {
        // Writing does not fail.
        let _ = self.write_fmt(text);
    }

    /// Words; nothing in a JSON document.
    #[inline(never)]
    pub fn text(&mut self, text: fmt::Arguments<'_>) {
        if !self.json {
            self.write(text);
        }
    }

    #[inline(never)]
    fn item(&mut self, text: fmt::Arguments<'_>, opens: bool) {
        if self.json {
            if self.follows {
                self.write(format_args!(","));
            }
            self.write(text);
            self.follows = !opens;
        }
    }

    #[inline(never)]
    fn close(&mut self, bracket: char) {
        if self.json {
            self.write(format_args!("{bracket}"));
            self.follows = true;
        }
    }

    /// The document begins.
    pub fn begin(&mut self) {
        self.item(format_args!("{{"), true);
    }

    /// A named object begins.
    pub fn object(&mut self, name: &str) {
        self.item(format_args!("\"{name}\":{{"), true);
    }

    /// An object begins whose name is a number.
    pub fn numbered_object(&mut self, name: usize) {
        self.item(format_args!("\"{name}\":{{"), true);
    }

    /// An object ends.
    pub fn end_object(&mut self) {
        self.close('}');
    }

    /// A named array begins.
    pub fn array(&mut self, name: &str) {
        self.item(format_args!("\"{name}\":["), true);
    }

    /// An object of an array begins.
    pub fn element(&mut self) {
        self.item(format_args!("{{"), true);
    }

    /// An array ends.
    pub fn end_array(&mut self) {
        self.close(']');
    }

    /// A named value of the JSON document.
    #[inline(never)]
    pub fn pair(&mut self, name: &str, value: &dyn Display) {
        self.item(format_args!("\"{name}\":{value}"), false);
    }

    /// The document is done.
    pub fn finish(mut self) {
        if self.json {
            self.write(format_args!("}}\n"));
        }
        self.flush();
    }
}
