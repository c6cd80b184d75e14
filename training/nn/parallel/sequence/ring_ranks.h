// The ranks of a ring, for buffers in the memory of the device that computes the layers.
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_RING_RANKS_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_RING_RANKS_H_

#include <string>

#include "geminid/async_communicator.h"
#include "geminid/buffer.h"
#include "geminid/pending.h"

namespace geminid::collectives {

// The errors and the bits are those of Communicator::SendReceive. One thread at a time; Abort on
// any.
class RingRanks {
 public:
  virtual ~RingRanks() = default;

  virtual int Rank() const = 0;
  virtual int WorldSize() const = 0;
  // Begins to send `here` to the next rank and to receive `coming` from the previous rank. Both
  // buffers are in use until the result is complete.
  virtual Pending Pass(ConstBuffer here, Buffer coming) = 0;
  virtual void Abort(const std::string& reason) = 0;

 protected:
  int next() const { return (Rank() + 1) % WorldSize(); }
  int previous() const { return (Rank() + WorldSize() - 1) % WorldSize(); }
};

// For layers whose memory is the host's. Buffers travel while the caller computes.
class HostRingRanks final : public RingRanks {
 public:
  // `ranks` outlive this object.
  explicit HostRingRanks(AsyncCommunicator& ranks) : ranks_(ranks) {}

  int Rank() const override { return ranks_.Rank(); }
  int WorldSize() const override { return ranks_.WorldSize(); }
  Pending Pass(ConstBuffer here, Buffer coming) override {
    return ranks_.SendReceive(here, next(), coming, previous());
  }
  void Abort(const std::string& reason) override { ranks_.Abort(reason); }

 private:
  AsyncCommunicator& ranks_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_RING_RANKS_H_
