// The explorer: imports its views, which register themselves, and begins.

import "./attention.js";
import { start } from "./frame.js";

start();
