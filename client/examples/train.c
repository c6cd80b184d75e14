/* The smallest trainer, in C: it pulls a matrix towards ones, as minimal_trainer.cc does. */
#include <stdio.h>
#include <stdlib.h>

#include "geminid/c_api.h"

enum { kElements = 64 * 64 };

static geminid_error* error;

static void Check(geminid_code code) {
  if (code == GEMINID_OK) return;
  fprintf(stderr, "%s: %s\n", geminid_code_name(code), geminid_error_message(error));
  exit(1);
}

static int FillZeros(void* context, uint32_t parameter, uint64_t first, float* values,
                     uint64_t count) {
  (void)context, (void)parameter, (void)first;
  for (uint64_t i = 0; i < count; ++i) values[i] = 0;
  return 0;
}

static geminid_engine* MakeEngine(geminid_session* session, geminid_ranks* ranks) {
  static const int64_t shape[] = {64, 64};
  geminid_parameter w;
  geminid_parameter_init(&w, sizeof w);
  w.name = "w";
  w.shape = shape;
  w.dimensions = 2;
  geminid_engine_options options;
  geminid_engine_options_init(&options, sizeof options);
  options.data_type = GEMINID_FLOAT32;
  geminid_engine* engine = NULL;
  Check(geminid_engine_create(session, ranks, &w, 1, &options, &engine, error));
  Check(geminid_engine_initialize(engine, FillZeros, NULL, error));
  return engine;
}

static void Step(geminid_engine* engine) {
  const uint32_t w = 0;
  uint64_t use;
  const void* weight;
  Check(geminid_engine_begin_micro_batch(engine, error));
  Check(geminid_engine_use(engine, GEMINID_FORWARD, &w, 1, 0, &use, error));
  Check(geminid_engine_weight(engine, use, w, &weight, error));
  printf("w = %.3f\n", *(const float*)weight);
  Check(geminid_engine_finish(engine, use, 0, error));

  void* address;
  int accumulates;
  Check(geminid_engine_use(engine, GEMINID_BACKWARD, &w, 1, 0, &use, error));
  Check(geminid_engine_gradient(engine, use, w, &address, &accumulates, error));
  float* gradient = address;                            /* takes the weight's place */
  for (int i = 0; i < kElements; ++i) gradient[i] -= 1; /* of half of (w - 1) squared */
  Check(geminid_engine_gradient_written(engine, use, w, error));
  Check(geminid_engine_finish(engine, use, 0, error));

  geminid_step_input input;
  geminid_step_input_init(&input, sizeof input);
  input.learning_rate = 0.1;
  Check(geminid_engine_step(engine, &input, NULL, error));
}

int main(void) {
  error = geminid_error_new();
  geminid_ranks_options rank;
  geminid_ranks_options_init(&rank, sizeof rank);
  rank.from_environment = 1; /* torchrun's, or alone */
  geminid_ranks* ranks = NULL;
  Check(geminid_ranks_connect(&rank, &ranks, error));
  geminid_place place;
  geminid_place_init(&place, sizeof place);
  Check(geminid_ranks_place(ranks, &place, error));

  geminid_session_options connect;
  geminid_session_options_init(&connect, sizeof connect);
  connect.rank = place.rank;
  connect.world_size = place.world_size;
  connect.device_memory_bytes = 24 << 20;
  geminid_session* session = NULL;
  Check(geminid_session_connect(&connect, &session, error)); /* starts a daemon if none runs */

  geminid_engine* engine = MakeEngine(session, ranks);
  for (int step = 0; step < 5; ++step) Step(engine);
  geminid_engine_free(&engine); /* in any order */
  geminid_session_free(&session);
  geminid_ranks_free(&ranks);
  geminid_error_free(error);
  return 0;
}
