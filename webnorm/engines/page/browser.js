import { serve } from "./client.js";

await serve(navigator.gpu, "messages", navigator.userAgent);
