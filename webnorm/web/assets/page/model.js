// The page of a model's package: creates all norms on this device, checks them, and shows the report.

import { checkModel } from "./model_norms.js";
import { ModelView } from "./model_view.js";
import { runPage } from "./verify_run.js";

runPage(checkModel, new ModelView());
