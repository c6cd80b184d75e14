// Extents to and from a disk, with their checksums: by io_uring and by threads. BM_UpdateExtents
// reads and writes as a step's updates do, and counts the bytes of both directions. The folder is
// $GEMINID_DISK_BENCH, or that of temporary files. To compare, run in the same folder:
//
//   fio --name=x --directory=FOLDER --size=1G --bs=1M --iodepth=64 --ioengine=io_uring --direct=1
//       --rw=read (or write) --end_fsync=1
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/disk/extent_io.h"
#include "client/disk/striped_files.h"
#include "tools/bench/must.h"
#include "tools/bench/size.h"

namespace geminid::disk {
namespace {

constexpr size_t kUnderWay = 3;
constexpr uint32_t kDepth = 64;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kFileBytes = 1024 * kMiB;
constexpr uint64_t kExtentBytes = 32 * kMiB;
constexpr uint64_t kSmallestExtentBytes = kMiB;

std::string Folder() {
  const char* const named = std::getenv("GEMINID_DISK_BENCH");
  return named != nullptr ? named : std::filesystem::temp_directory_path().string();
}

class Disk {
 public:
  explicit Disk(bool uring, uint64_t extent_bytes = kExtentBytes)
      : map_(std::vector<uint64_t>(bench::Size(kFileBytes, size_t{4} << 20) /
                                       bench::Size(extent_bytes, kSmallestExtentBytes),
                                   bench::Size(extent_bytes, kSmallestExtentBytes))),
        files_(bench::Must(
            StripedFiles::Create({.folders = {Folder()}, .bytes = map_.total_bytes()}))) {
    const uint64_t bytes = map_.largest();
    for (size_t i = 0; i < kUnderWay; ++i) {
      memory_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, bytes)),
                           &std::free);
      std::fill_n(memory_.back().get(), bytes, static_cast<std::byte>(i + 1));
      buffers_.emplace_back(memory_.back().get(), bytes);
    }
    std::unique_ptr<FileIo> io = bench::Must(MakeFileIo({.depth = kDepth, .uring = uring}));
    io->UseBuffers(buffers_).IgnoreError();
    io_ = std::make_unique<ExtentIo>(files_, map_, std::move(io), absl::Minutes(5), &traffic_);
  }

  // All extents, with several in flight.
  void Write(uint64_t version) {
    std::deque<ExtentIo::Ticket> under_way;
    for (size_t extent = 0; extent < map_.size(); ++extent) {
      if (under_way.size() == kUnderWay) FinishFirst(&under_way);
      under_way.push_back(io_->StartWrite(extent, {.owner = extent, .version = version},
                                          buffers_[extent % kUnderWay]));
    }
    while (!under_way.empty()) FinishFirst(&under_way);
  }

  void Read(uint64_t version) {
    std::deque<std::pair<ExtentIo::Ticket, size_t>> under_way;
    const auto finish_first = [&] {
      const auto [ticket, extent] = under_way.front();
      under_way.pop_front();
      const ExtentKey key = {.owner = extent, .version = version};
      bench::Must(io_->FinishRead(ticket, key, /*may_be_blank=*/false));
    };
    for (size_t extent = 0; extent < map_.size(); ++extent) {
      if (under_way.size() == kUnderWay) finish_first();
      under_way.emplace_back(io_->StartRead(extent, buffers_[extent % kUnderWay]), extent);
    }
    while (!under_way.empty()) finish_first();
  }

  // Reads every extent and writes it back, as updates do: while one is written, the next one is
  // checked and sealed, and the one after that is read.
  void Update(uint64_t version) {
    std::deque<ExtentIo::Ticket> coming;
    std::optional<ExtentIo::Ticket> leaving;
    size_t started = 0;
    for (size_t extent = 0; extent < map_.size(); ++extent) {
      const size_t most = extent + kUnderWay - (leaving.has_value() ? 1 : 0);
      for (; started < std::min(most, map_.size()); ++started) {
        coming.push_back(io_->StartRead(started, buffers_[started % kUnderWay]));
      }
      const std::span<std::byte> buffer = buffers_[extent % kUnderWay];
      const ExtentKey key = {.owner = extent, .version = version - 1};
      bench::Must(io_->FinishRead(coming.front(), key, /*may_be_blank=*/false));
      coming.pop_front();
      io_->Seal(extent, {.owner = extent, .version = version}, buffer);
      if (leaving.has_value()) bench::Must(io_->Finish(*leaving));
      leaving = io_->StartSealed(extent, buffer);
    }
    bench::Must(io_->Finish(*leaving));
  }

  int64_t bytes() const { return static_cast<int64_t>(map_.total_bytes()); }

 private:
  void FinishFirst(std::deque<ExtentIo::Ticket>* under_way) {
    bench::Must(io_->Finish(under_way->front()));
    under_way->pop_front();
  }

  ExtentMap map_;
  StripedFiles files_;
  DiskTraffic traffic_;
  std::vector<std::unique_ptr<std::byte, decltype(&std::free)>> memory_;
  std::vector<std::span<std::byte>> buffers_;
  std::unique_ptr<ExtentIo> io_;
};

void BM_WriteExtents(benchmark::State& state) {
  Disk disk(state.range(0) != 0);
  uint64_t version = 0;
  for (auto _ : state) disk.Write(++version);
  state.SetBytesProcessed(state.iterations() * disk.bytes());
}

void BM_ReadExtents(benchmark::State& state) {
  Disk disk(state.range(0) != 0);
  disk.Write(1);
  for (auto _ : state) disk.Read(1);
  state.SetBytesProcessed(state.iterations() * disk.bytes());
}

void BM_UpdateExtents(benchmark::State& state) {
  Disk disk(/*uring=*/true, static_cast<uint64_t>(state.range(0)) * kMiB);
  uint64_t version = 1;
  disk.Write(version);
  for (auto _ : state) disk.Update(++version);
  state.SetBytesProcessed(state.iterations() * 2 * disk.bytes());
}

BENCHMARK(BM_WriteExtents)->ArgName("uring")->Arg(1)->Arg(0)->UseRealTime();
BENCHMARK(BM_ReadExtents)->ArgName("uring")->Arg(1)->Arg(0)->UseRealTime();
BENCHMARK(BM_UpdateExtents)->ArgName("MiB")->Arg(1)->Arg(3)->Arg(32)->UseRealTime();

}  // namespace
}  // namespace geminid::disk

BENCHMARK_MAIN();
