// The page of a package: checks its shaders on this device, times them, and shows the report.

import { checkPackage } from "./verify_package.js";
import { runPage } from "./verify_run.js";
import { View } from "./verify_view.js";

runPage(checkPackage, new View());
