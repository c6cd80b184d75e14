// Properties that the suite does not check: memory of the device, ranks without NCCL, and NCCL that
// fails, hangs, or loses a peer during a call. Ranks are processes.
#include "collectives/nccl/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/shm/shm_communicator.h"
#include "gpu/driver.h"
#include "gpu/library_search.h"
#include "gpu/nccl_api.h"
#include "tests/collectives/forked_ranks.h"
#include "tests/collectives/nccl/nccl_world.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ready = ForkedRanks::Ready;

constexpr int kRanks = 3;
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr std::chrono::seconds kPromptly{2};  // the bound on noticing a death

std::string Text(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

// Memory of a rank's GPU. A processor that touches it kills its process.
class DeviceFloats {
 public:
  DeviceFloats(const NcclPlace& place, const std::vector<float>& values) : place_(place) {
    place_.driver->ctx_set_current(place_.context);
    EXPECT_EQ(place_.driver->mem_alloc(&address_, values.size() * sizeof(float)), CUDA_SUCCESS);
    EXPECT_EQ(place_.driver->memcpy_htod_async(address_, values.data(),
                                               values.size() * sizeof(float), nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(place_.driver->stream_synchronize(nullptr), CUDA_SUCCESS);
    count_ = values.size();
  }
  Buffer buffer() const { return {reinterpret_cast<void*>(address_), count_, DType::kFloat32}; }
  std::span<std::byte> bytes() const {
    return {reinterpret_cast<std::byte*>(address_), count_ * sizeof(float)};
  }
  Buffer Slice(size_t first, size_t count) const {
    return {reinterpret_cast<void*>(address_ + first * sizeof(float)), count, DType::kFloat32};
  }
  std::vector<float> Read() const {
    std::vector<float> values(count_);
    EXPECT_EQ(
        place_.driver->memcpy_dtoh_async(values.data(), address_, count_ * sizeof(float), nullptr),
        CUDA_SUCCESS);
    EXPECT_EQ(place_.driver->stream_synchronize(nullptr), CUDA_SUCCESS);
    return values;
  }

 private:
  const NcclPlace place_;
  CUdeviceptr address_ = 0;
  size_t count_ = 0;
};

Buffer Own(const DeviceFloats& values, int rank, size_t count) {
  return values.Slice(static_cast<size_t>(rank) * count, count);
}

class Nccl : public ::testing::Test {
 protected:
  explicit Nccl(const gpu_double::NodeOptions& node = NodeWithNccl(kRanks)) : node_(node) {}

  absl::StatusOr<std::unique_ptr<Communicator>> Control(int rank,
                                                        absl::Duration timeout = kPatience) const {
    return ConnectShm(name_, rank, kRanks, {.timeout = timeout, .connect_timeout = kPatience});
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(int rank, const NcclPlace& place,
                                                        absl::Duration timeout = kPatience) const {
    auto control = Control(rank, timeout);
    if (!control.ok()) return control.status();
    return ConnectNccl(place, *std::move(control));
  }

  gpu_double::Node node_;
  const std::string name_ = UniqueName();
};

TEST_F(Nccl, OnMemoryOfTheDevices_ReducesScattersAndGathers) {
  constexpr size_t kSlice = 5000;
  ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
    const NcclPlace place = PlaceOf(rank);
    auto c = Connect(rank, place);
    if (!c.ok()) return Text(c.status());
    std::vector<float> values(kSlice * kRanks);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 7 * rank);
    const DeviceFloats device(place, values);
    const Buffer own = device.Slice(static_cast<size_t>(rank) * kSlice, kSlice);
    absl::Status status = (*c)->ReduceScatter(device.buffer(), own, ReduceOp::kSum, {.scale = 0.5});
    if (status.ok()) status = (*c)->AllGather(own, device.buffer());
    if (!status.ok()) return Text(status);
    const std::vector<float> result = device.Read();
    for (size_t i = 0; i < result.size(); ++i) {
      const float expected = (static_cast<float>(kRanks * i) + 7 * (0 + 1 + 2)) * 0.5F;
      if (result[i] != expected) return absl::StrCat("wrong at ", i);
    }
    return std::string((*c)->BackendName()) + " is right";
  });
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(ranks.Result(r), "nccl is right");
  EXPECT_GT(node_.calls("ncclAllGather"), 0u);
  EXPECT_GT(node_.calls("ncclSend"), 0u);
}

// Ranks that tell NCCL of their buffers, of 3 x 100 floats each. The results are those of `use`.
// `library` replaces the node's NCCL, on all ranks or on one.
class NcclBuffersOfRanks : public Nccl {
 protected:
  using Use = std::function<std::string(Communicator& communicator, NcclBuffers& buffers,
                                        const DeviceFloats& values, int rank)>;
  std::string Results(const std::string& library, const Use& use, int rank_of_library = -1) {
    ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
      const bool has_it = rank_of_library < 0 || rank_of_library == rank;
      if (!library.empty() && has_it) setenv(gpu::kNcclPathVariable, library.c_str(), 1);
      NcclPlace place = PlaceOf(rank);
      place.buffers = std::make_shared<NcclBuffers>();
      const DeviceFloats values(place, std::vector<float>(kFloats, static_cast<float>(rank)));
      place.buffers->Add(values.bytes());
      auto c = Connect(rank, place);
      return c.ok() ? use(**c, *place.buffers, values, rank) : Text(c.status());
    });
    std::string results;
    for (int r = 0; r < kRanks; ++r) absl::StrAppend(&results, r, ": ", ranks.Result(r), "; ");
    return results;
  }
  // Whether the ranks can gather and reduce with the buffer. A rank's own floats are `each` times
  // the rank.
  static std::string GatherAndReduce(Communicator& c, const DeviceFloats& values, int rank,
                                     int each = 1) {
    absl::Status status = c.AllGather(Own(values, rank, kFloats / kRanks), values.buffer());
    if (status.ok()) status = c.ReduceScatter(values.buffer(), Own(values, rank, kFloats / kRanks));
    if (!status.ok()) return Text(status);
    const float sum = values.Read()[static_cast<size_t>(rank) * kFloats / kRanks];
    return sum == static_cast<float>(kRanks * each * rank) ? "right" : absl::StrCat("wrong: ", sum);
  }

  static constexpr size_t kFloats = 300;
  static constexpr size_t kBytes = kFloats * sizeof(float);
};

TEST_F(NcclBuffersOfRanks, MemoryThatIsThere_IsRegisteredCountedAndGivenBack) {
  EXPECT_EQ(Results("",
                    [](Communicator& c, NcclBuffers& buffers, const DeviceFloats& values,
                       int rank) -> std::string {
                      const uint64_t before = c.Stats().registered_bytes;
                      const std::string right = GatherAndReduce(c, values, rank);
                      const uint64_t with_rows =
                          c.Stats().registered_bytes;  // of the rows that it adds up
                      buffers.RemoveAll();
                      const uint64_t without = c.Stats().registered_bytes;
                      buffers.Add(values.bytes());
                      const uint64_t again = c.Stats().registered_bytes;
                      return absl::StrCat(right, " ", before / kBytes, " ", with_rows / kBytes, " ",
                                          without / kBytes, " ", again / kBytes, " ",
                                          GatherAndReduce(c, values, rank, kRanks));
                    }),
            "0: right 1 2 1 2 right; 1: right 1 2 1 2 right; 2: right 1 2 1 2 right; ");
  // Each rank registers its buffer twice, and its rows.
  EXPECT_EQ(node_.calls("ncclCommRegister"), 3u * kRanks);
  EXPECT_EQ(node_.calls("ncclCommDeregister"), 3u * kRanks);
}

TEST_F(NcclBuffersOfRanks, EverySubset_RegistersThemToo) {
  EXPECT_EQ(Results("",
                    [](Communicator& c, NcclBuffers& buffers, const DeviceFloats& values,
                       int rank) -> std::string {
                      const std::vector<int> members =
                          rank == 2 ? std::vector<int>{2} : std::vector<int>{0, 1};
                      auto subset = c.Subset("some", members);
                      if (!subset.ok()) return Text(subset.status());
                      const uint64_t both =
                          c.Stats().registered_bytes + (*subset)->Stats().registered_bytes;
                      buffers.RemoveAll();
                      return absl::StrCat(both / values.bytes().size(), " ",
                                          c.Stats().registered_bytes, " ",
                                          (*subset)->Stats().registered_bytes);
                    }),
            "0: 2 0 0; 1: 2 0 0; 2: 2 0 0; ");
}

TEST_F(NcclBuffersOfRanks, LibraryBefore2_19_DoesWithout) {
  EXPECT_EQ(Results(GEMINID_OLD_NCCL_DOUBLE,
                    [](Communicator& c, NcclBuffers&, const DeviceFloats& values, int rank) {
                      return absl::StrCat(GatherAndReduce(c, values, rank), " ",
                                          c.Stats().registered_bytes);
                    }),
            "0: right 0; 1: right 0; 2: right 0; ");
  EXPECT_EQ(node_.calls("ncclCommRegister"), 0u);
}

// A rank may not pass registered memory if another rank has none.
TEST_F(NcclBuffersOfRanks, OneLibraryBefore2_19_AllDoWithout) {
  EXPECT_EQ(Results(
                GEMINID_OLD_NCCL_DOUBLE,
                [](Communicator& c, NcclBuffers&, const DeviceFloats& values, int rank) {
                  return absl::StrCat(GatherAndReduce(c, values, rank), " ",
                                      c.Stats().registered_bytes);
                },
                /*rank_of_library=*/1),
            "0: right 0; 1: right 0; 2: right 0; ");
  EXPECT_EQ(node_.calls("ncclCommRegister"), 2u);
  EXPECT_EQ(node_.calls("ncclCommDeregister"), 2u);
}

// Rank 1's buffer lies in two ranges, and so does its own slice. The buffer and the rows that the
// rank adds up are registered, and as many bytes again through which the buffer is copied.
TEST_F(NcclBuffersOfRanks, MemoryAcrossABorder_GoesThroughMemoryThatIsRegistered) {
  constexpr size_t kBorder = kBytes / 2;
  EXPECT_EQ(
      Results("",
              [](Communicator& c, NcclBuffers& buffers, const DeviceFloats& values, int rank) {
                if (rank == 1) {
                  buffers.RemoveAll();
                  buffers.Add(values.bytes().first(kBorder));
                  buffers.Add(values.bytes().subspan(kBorder));
                }
                const std::string right = GatherAndReduce(c, values, rank);
                return absl::StrCat(right, " ", c.Stats().registered_bytes / kBytes);
              }),
      "0: right 2; 1: right 3; 2: right 2; ");
}

TEST_F(NcclBuffersOfRanks, MemoryThatNcclRefuses_IsMovedAllTheSame) {
  constexpr int kEveryTime = 1000;
  node_.FailLibrary("ncclCommRegister", static_cast<int>(gpu::NcclResult::kUnhandledCudaError), 0,
                    kEveryTime);
  EXPECT_EQ(Results("",
                    [](Communicator& c, NcclBuffers&, const DeviceFloats& values, int rank) {
                      return absl::StrCat(GatherAndReduce(c, values, rank), " ",
                                          c.Stats().registered_bytes);
                    }),
            "0: right 0; 1: right 0; 2: right 0; ");
  EXPECT_EQ(node_.calls("ncclCommDeregister"), 0u);
}

// An aborted communicator has no registrations any more.
TEST_F(NcclBuffersOfRanks, AfterAFailure_MemoryCanBeTakenAway) {
  node_.FailLibrary("ncclAllGather", static_cast<int>(gpu::NcclResult::kUnhandledCudaError));
  EXPECT_EQ(Results("",
                    [](Communicator& c, NcclBuffers& buffers, const DeviceFloats& values,
                       int rank) -> std::string {
                      const bool fails = GatherAndReduce(c, values, rank) != "right";
                      const uint64_t left = c.Stats().registered_bytes;
                      buffers.RemoveAll();
                      return absl::StrCat(fails, " ", left, " ", c.Stats().registered_bytes);
                    }),
            "0: 1 0 0; 1: 1 0 0; 2: 1 0 0; ");
}

// Host memory is not GPU memory, unless the machine says so.
TEST_F(Nccl, MemoryOfTheHost_IsAnErrorOfTheDevice) {
  ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
    auto c = Connect(rank, PlaceOf(rank));
    if (!c.ok()) return Text(c.status());
    std::vector<float> values(4), all(4 * kRanks);
    return Text((*c)->AllGather(values, all));
  });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_THAT(ranks.Result(r), AllOf(HasSubstr("ILLEGAL_ADDRESS"), HasSubstr(gpu::kLostAdvice)));
  }
}

TEST_F(Nccl, RanksThatShareAGpu_AreAllToldSo) {
  ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
    return Text(Connect(rank, PlaceOf(rank == 2 ? 0 : rank)).status());
  });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(ranks.Result(r), "UNAVAILABLE: ranks 0 and 2 share a GPU, which NCCL does not allow");
  }
}

// A GPU with instances: NCCL takes the instances for one GPU.
class NcclOnInstances : public Nccl {
 protected:
  NcclOnInstances() : Nccl(Divided()) {}
  static gpu_double::NodeOptions Divided() {
    gpu_double::NodeOptions options = NodeWithNccl(1);
    options.instances = kRanks;
    return options;
  }
};

TEST_F(NcclOnInstances, OfOneGpu_AllRanksAreToldThatNcclRefuses) {
  ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
    setenv("CUDA_VISIBLE_DEVICES", gpu_double::InstanceUuidOf(rank).c_str(), 1);
    return Text(Connect(rank, PlaceOf(0)).status());
  });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_THAT(ranks.Result(r), HasSubstr("ncclCommInitRankConfig: invalid usage"));
  }
}

TEST_F(Nccl, RankWithoutTheLibrary_IsNamedToAll) {
  ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
    if (rank == 1) setenv(gpu::kNcclPathVariable, gpu::kNoLibrary, 1);
    return Text(Connect(rank, PlaceOf(rank)).status());
  });
  EXPECT_EQ(ranks.Result(0), "UNAVAILABLE: rank 1 has no NCCL");
  EXPECT_EQ(ranks.Result(1), "UNAVAILABLE: rank 1 has no NCCL: GEMINID_LIBNCCL says none");
  EXPECT_EQ(ranks.Result(2), "UNAVAILABLE: rank 1 has no NCCL");
}

TEST_F(Nccl, RankWhoseNcclDoesNotStart_EndsTheOthersWait) {
  node_.FailLibrary("ncclCommInitRankConfig", static_cast<int>(gpu::NcclResult::kInternalError));
  ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
    return Text(Connect(rank, PlaceOf(rank)).status());
  });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_THAT(ranks.Result(r), HasSubstr("ncclCommInitRankConfig: internal error"));
  }
}

TEST_F(Nccl, CallThatNcclRefuses_FailsAllRanksAlike) {
  node_.FailLibrary("ncclAllGather", static_cast<int>(gpu::NcclResult::kUnhandledCudaError));
  ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
    const NcclPlace place = PlaceOf(rank);
    auto c = Connect(rank, place);
    if (!c.ok()) return Text(c.status());
    const DeviceFloats values(place, std::vector<float>(300));
    const absl::Status status = (*c)->AllGather(Own(values, rank, 100), values.buffer());
    return (*c)->Barrier() == status ? Text(status) : "another answer";
  });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(ranks.Result(r),
              "INTERNAL: NCCL: AllGather of 100 float32 per rank: unhandled cuda error");
  }
}

// The victim's GPU stalls, so that all ranks are in NCCL when it dies.
TEST_F(Nccl, RankThatDiesInTheMiddle_IsNamedWithinTwoSeconds) {
  constexpr int kVictim = 1;
  ForkedRanks ranks(kRanks, [&](int rank, const Ready& ready) -> std::string {
    const NcclPlace place = PlaceOf(rank);
    auto c = Connect(rank, place);
    if (!c.ok()) return Text(c.status());
    const DeviceFloats values(place, std::vector<float>(3000));
    if (absl::Status status = (*c)->Barrier(); !status.ok()) return Text(status);
    if (rank == kVictim) {
      node_.Hold(kVictim, true);
      ready();
    }
    const absl::Status status = (*c)->AllGather(Own(values, rank, 1000), values.buffer());
    ready();
    return (*c)->Barrier() == status ? Text(status) : "another answer";
  });
  ranks.AwaitReady(kVictim);
  while (node_.calls("ncclAllGather") < kRanks) std::this_thread::yield();
  const auto killed = std::chrono::steady_clock::now();
  ranks.Kill(kVictim);
  for (const int r : {0, 2}) {
    EXPECT_LT(ranks.AwaitReady(r) - killed, kPromptly) << r;
    EXPECT_EQ(ranks.Result(r),
              "UNAVAILABLE: rank 1 died; start it again and connect a new communicator");
  }
}

TEST_F(Nccl, GpuThatStandsStill_EndsTheOperationAtItsTimeout) {
  std::string words;
  // Ranks that come later than that never enter NCCL.
  const auto all_are_in_nccl = [&](absl::Duration timeout) {
    ForkedRanks ranks(kRanks, [&](int rank, const Ready&) -> std::string {
      const NcclPlace place = PlaceOf(rank);
      auto c = Connect(rank, place);
      if (!c.ok()) return Text(c.status());
      const DeviceFloats values(place, std::vector<float>(300));
      if (absl::Status status = (*c)->Barrier(); !status.ok()) return Text(status);
      if (rank == 0) node_.Hold(0, true);
      (*c)->SetTimeout(timeout);
      return Text((*c)->AllGather(Own(values, rank, 100), values.buffer()));
    });
    bool all = true;
    words.clear();
    for (int r = 0; r < kRanks; ++r) {
      const std::string result = ranks.Result(r);
      EXPECT_THAT(result, testing::StartsWith("DEADLINE_EXCEEDED: "));
      all = all &&
            result.find(absl::StrCat("NCCL: AllGather of 100 float32 per rank: not done within ",
                                     absl::FormatDuration(timeout))) != std::string::npos;
      absl::StrAppend(&words, result, "\n");
    }
    node_.Hold(0, false);
    return all;
  };
  EXPECT_TRUE(WithTimeForAll(all_are_in_nccl)) << words;
}

}  // namespace
}  // namespace geminid::collectives
