// The tile registers of a thread, and their shape, which outlives a kernel: to configure the tiles takes as long as
// some products of few rows.

static thread_local Tiles tiles_of_thread;

static void begin_job() { tiles_of_thread.open(); }
static void end_job() { tiles_of_thread.close(); }
