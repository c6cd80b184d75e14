// The objects that one rank of a run computes with.
#ifndef GEMINID_TRAINING_RUN_RUN_RANK_H_
#define GEMINID_TRAINING_RUN_RUN_RANK_H_

#include <memory>
#include <optional>

#include "geminid/communicator.h"
#include "geminid/mesh.h"
#include "geminid/session.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/engines/activation_choice.h"
#include "training/engines/trained_model.h"
#include "training/logs/counted_state.h"
#include "training/settings/parallel.h"

namespace geminid::trainer {

// Members are made in this order and destroyed in reverse, because the model uses all before it.
struct RunRank {
  std::unique_ptr<collectives::Communicator> world;
  std::unique_ptr<kernels::ThreadPool> threads;  // null: one
  std::optional<collectives::Mesh> mesh;
  std::unique_ptr<collectives::Communicator> sums;  // of `world`'s ranks, for the trainer's sums
  std::unique_ptr<Session> session;
  std::unique_ptr<TrainedModel> model;
  std::unique_ptr<CountedState> state;  // of the model
  ActivationChoice activations;

  int Stage() const { return mesh->Coordinate(world->Rank(), kPipelineAxis); }
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_RUN_RANK_H_
