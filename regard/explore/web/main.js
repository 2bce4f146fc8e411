// The explorer: imports its views, which register themselves, and begins.

import "./attention.js";
import "./decoding.js";
import "./heads.js";
import "./search.js";
import "./steps.js";
import { askable } from "./ask.js";
import { start } from "./frame.js";

start();
askable();
