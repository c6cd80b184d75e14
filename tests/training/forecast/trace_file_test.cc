#include "training/forecast/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "google/protobuf/util/message_differencer.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/problem.h"

namespace geminid::forecast {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

RecordedTrace Recorded() {
  Job job;
  job.hardware = *FindHardware("a100-40gb");
  job.ranks = 4;
  job.host_bytes = std::uint64_t{64} << 30;
  job.batch = {.sequences = 2, .sequence_length = 256};
  const planner::TierProblem problem = *MakeProblem(*FindModel("gpt2"), job);
  RecordedTrace recorded;
  recorded.description = "gpt2, 2 x 256 tokens";
  recorded.world_size = 4;
  recorded.ranks_on_node = 4;
  recorded.tokens = 512;
  recorded.trace = problem.trace;
  recorded.optimizer = problem.optimizer;
  recorded.activations = problem.activations;
  return recorded;
}

class TraceFiles : public ::testing::Test {
 protected:
  TraceFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trace.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TraceFiles() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  std::string Error(const std::string& name) const {
    return std::string(LoadTraceFile(Path(name)).status().message());
  }

  std::string folder_;
};

TEST_F(TraceFiles, EveryFormat_ReadsBackWhatWasWritten) {
  const v1::TraceFile message = ToMessage(Recorded());
  for (const char* name : {"a.json", "a.textproto", "a.pb", "a.trace"}) {
    ASSERT_TRUE(SaveTraceFile(Path(name), message).ok()) << name;
    const absl::StatusOr<v1::TraceFile> loaded = LoadTraceFile(Path(name));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(MessageDifferencer::Equals(message, *loaded)) << name;
  }
}

TEST_F(TraceFiles, Contents_SurviveTheMessage) {
  const RecordedTrace before = Recorded();
  const absl::StatusOr<RecordedTrace> after = FromMessage(ToMessage(before));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(planner::TraceHash(after->trace), planner::TraceHash(before.trace));
  EXPECT_TRUE(MessageDifferencer::Equals(ToMessage(*after), ToMessage(before)));
  EXPECT_EQ(after->optimizer.size(), before.trace.chunks.size());
  EXPECT_EQ(after->activations.size(), 24u);
}

TEST_F(TraceFiles, Saving_ReplacesAndLeavesNothingElse) {
  Write("a.json", "old");
  ASSERT_TRUE(SaveTraceFile(Path("a.json"), ToMessage(Recorded())).ok());
  EXPECT_TRUE(LoadTraceFile(Path("a.json")).ok());
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1);
}

TEST_F(TraceFiles, WhereNothingCanBeWritten_TheErrorNamesThePath) {
  const absl::Status status = SaveTraceFile(Path("none/a.json"), ToMessage(Recorded()));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("none/a.json"));
}

TEST_F(TraceFiles, UnknownExtensionAndMissingFile_AreToldApart) {
  EXPECT_EQ(LoadTraceFile(Path("a.txt")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SaveTraceFile(Path("a"), {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LoadTraceFile(Path("a.json")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TraceFiles, Garbage_IsRefusedInEveryFormat) {
  for (const char* name : {"a.json", "a.textproto", "a.pb"}) {
    Write(name, "\x08\x99garbage");
    EXPECT_EQ(LoadTraceFile(Path(name)).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
  Write("b.textproto", "format_version: 1\nworlds: 3\n");
  EXPECT_THAT(Error("b.textproto"), HasSubstr("line 2"));
  Write("b.json", "{\"worlds\": 3}");
  EXPECT_THAT(Error("b.json"), HasSubstr("worlds"));
}

TEST_F(TraceFiles, PartOfABinaryFile_IsRefused) {
  std::string bytes;
  ToMessage(Recorded()).SerializeToString(&bytes);
  Write("a.pb", bytes.substr(0, bytes.size() - 3));
  EXPECT_FALSE(LoadTraceFile(Path("a.pb")).ok());
}

TEST_F(TraceFiles, FileBeyondTheLimit_IsRefused) {
  Write("a.pb", "");
  std::filesystem::resize_file(Path("a.pb"), kMaxTraceFileBytes + 1);
  EXPECT_THAT(Error("a.pb"), HasSubstr("larger than"));
}

TEST(TraceMessages, ForeignContents_AreCheckedFieldByField) {
  const auto error = [](auto change) {
    v1::TraceFile message = ToMessage(Recorded());
    change(&message);
    const absl::StatusOr<RecordedTrace> recorded = FromMessage(message);
    EXPECT_EQ(recorded.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(recorded.status().message());
  };
  using File = v1::TraceFile;
  EXPECT_THAT(error([](File* f) { f->set_format_version(2); }), HasSubstr("format_version is 2"));
  EXPECT_THAT(error([](File* f) { f->set_world_size(0); }), HasSubstr("world_size is 0"));
  EXPECT_THAT(error([](File* f) { f->set_ranks_on_node(5); }), HasSubstr("ranks_on_node is 5"));
  EXPECT_THAT(error([](File* f) { f->set_tokens(~0ull); }), HasSubstr("tokens"));
  EXPECT_THAT(error([](File* f) { f->set_description(std::string(300, 'x')); }),
              HasSubstr("description"));
  EXPECT_THAT(error([](File* f) { f->mutable_optimizer()->RemoveLast(); }),
              HasSubstr("one per chunk, or none"));
  EXPECT_THAT(error([](File* f) { f->mutable_optimizer(3)->set_moment_bytes(~0ull); }),
              HasSubstr("optimizer[3]"));
  EXPECT_THAT(error([](File* f) { f->mutable_activations(2)->set_consumed(9999); }),
              HasSubstr("activations[2]"));
  EXPECT_THAT(error([](File* f) { f->mutable_activations(2)->set_kept_bytes(~0ull); }),
              HasSubstr("activations[2]"));
  EXPECT_THAT(error([](File* f) { f->mutable_activations(1)->set_recompute_seconds(-1); }),
              HasSubstr("activations[1].recompute_seconds"));
  error([](File* f) { f->mutable_trace()->mutable_moments(0)->mutable_uses(0)->set_index(9999); });
  error([](File* f) { f->mutable_trace()->mutable_moments(0)->set_compute_seconds(-1); });
}

TEST(DefaultOptimizer, Bf16Weights_Have12BytesAndFrozenOnesTwo) {
  planner::Trace trace;
  trace.chunks = {{.id = 0, .size_bytes = 8192, .transfer_bytes = 2048, .gradient_bytes = 2048},
                  {.id = 1, .size_bytes = 8192, .transfer_bytes = 2048, .frozen = true},
                  {.id = 2, .size_bytes = 8192}};
  const std::vector<planner::OptimizerItem> items = DefaultOptimizer(trace, 4, 8);
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].parameters, 1024u);
  EXPECT_EQ(items[0].state_bytes(), 12u * 1024);
  EXPECT_EQ(items[0].gradient_bytes, 2048u);
  EXPECT_EQ(items[1].parameters, 0u);
  EXPECT_EQ(items[1].state_bytes(), 2048u);
  // State on the device needs no transfer.
  EXPECT_EQ(items[2].parameters, 1024u);
}

}  // namespace
}  // namespace geminid::forecast
