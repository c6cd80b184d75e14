// Every probe with a correct driver, and with drivers that each break one expectation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/tools/gpu-verify/fake_driver.h"
#include "tools/gpu-verify/link_rates.h"
#include "tools/gpu-verify/probe.h"
#include "tools/gpu-verify/process.h"

namespace geminid::gpu_verify {
namespace {

using testing::HasSubstr;

Effort TinyEffort() {
  Effort effort;
  effort.slab_bytes = 4 * kMib;
  effort.slab_sizes = {2 * kMib, 4 * kMib};
  effort.pattern_bytes = 4 * kMib;
  effort.chunk_bytes = kMib;
  effort.kills = 4;
  effort.dma_kills = 8;
  effort.dma_bytes = kMib;
  effort.dma_queue = 100'000;  // more than are copied before the kill
  effort.lanes = 2;
  effort.words = 2000;
  effort.calls = 50;
  effort.window_seconds = 0.05;
  effort.link_bytes = 2 * kMib;
  effort.pinned_bytes = 4 * kMib;
  effort.dying_bytes = 4 * kMib;
  effort.return_seconds = 3;
  effort.filled_share = 0.005;
  effort.stuck_seconds = 0.02;
  return effort;
}

Outcome RunTiny(Outcome (*probe)(const Context&), const Faults& faults = {},
                const Effort& effort = TinyEffort()) {
  constexpr double kAmpleSeconds = 600;
  const gpu::DriverApi driver = FakeDriver(faults);
  return RunIsolated(
      [&](const Progress& progress) {
        return probe({driver, 0, effort, Now() + kAmpleSeconds, progress});
      },
      kAmpleSeconds, [](const std::string&) {});
}

std::map<std::string, double> Numbers(const Outcome& outcome) {
  return {outcome.numbers.begin(), outcome.numbers.end()};
}

#define EXPECT_PASS(outcome) \
  EXPECT_EQ(outcome.verdict, Verdict::kPass) << outcome.figure << "; " << outcome.reason
#define EXPECT_FAIL(outcome) EXPECT_EQ(outcome.verdict, Verdict::kFail) << outcome.figure

TEST(ContextFreeExport, PossibleWithoutOverhead_Passes) {
  const Outcome outcome = RunTiny(ProbeContextFreeExport);
  EXPECT_PASS(outcome);
  EXPECT_EQ(Numbers(outcome).at("overhead_bytes"), 0);
}

TEST(ContextFreeExport, ContextIsNeeded_FailsWithTheDriversError) {
  const Outcome outcome = RunTiny(ProbeContextFreeExport, {.create_needs_context = true});
  EXPECT_FAIL(outcome);
  EXPECT_THAT(outcome.reason, HasSubstr("cuMemCreate: CUDA_ERROR_INVALID_CONTEXT"));
}

TEST(ContextFreeExport, InitialisingTakesMemory_Fails) {
  EXPECT_FAIL(RunTiny(ProbeContextFreeExport, {.init_takes_memory = true}));
}

TEST(ExporterDeath, MemoryStays_Passes) {
  const Outcome outcome = RunTiny(ProbeExporterDeath);
  EXPECT_PASS(outcome);
  EXPECT_EQ(Numbers(outcome).at("kills"), 4);
  EXPECT_EQ(Numbers(outcome).at("intact"), 4);
}

TEST(ExporterDeath, MemoryDiesWithItsExporter_Fails) {
  const Outcome outcome = RunTiny(ProbeExporterDeath, {.memory_dies_with_exporter = true});
  EXPECT_FAIL(outcome);
  EXPECT_EQ(Numbers(outcome).at("intact"), 0);
}

TEST(LastProcess, MemoryStays_Passes) { EXPECT_PASS(RunTiny(ProbeLastProcess)); }

TEST(LastProcess, DeviceShutsDown_Fails) {
  const Outcome outcome = RunTiny(ProbeLastProcess, {.memory_dies_with_last_process = true});
  EXPECT_FAIL(outcome);
  EXPECT_EQ(Numbers(outcome).at("alone_intact"), 0);
}

TEST(ExporterDeath, DeviceThatWouldShutDown_IsKeptUpByTheReader) {
  EXPECT_PASS(RunTiny(ProbeExporterDeath, {.memory_dies_with_last_process = true}));
}

TEST(PollEvents, QuietDescriptor_Passes) { EXPECT_PASS(RunTiny(ProbePollEvents)); }

TEST(PollEvents, DescriptorHangsUp_Fails) {
  const Outcome outcome = RunTiny(ProbePollEvents, {.descriptor_hangs_up = true});
  EXPECT_FAIL(outcome);
  EXPECT_THAT(outcome.figure, HasSubstr("HUP"));
}

TEST(SlabLatency, EverySizeAndStep_IsMeasured) {
  const Outcome outcome = RunTiny(ProbeSlabLatency);
  EXPECT_EQ(outcome.numbers.size(), 2u * 8u);
  EXPECT_GT(Numbers(outcome).at("import_seconds_2_mib"), 0);
  EXPECT_GT(Numbers(outcome).at("access_seconds_4_mib"), 0);
}

TEST(SlabLatency, SlowCreation_Fails) {
  EXPECT_FAIL(RunTiny(ProbeSlabLatency, {.slow_calls = true}));
}

TEST(Sharing, ReadOnlyIsKept_Passes) {
  const Outcome outcome = RunTiny(ProbeSharing);
  EXPECT_PASS(outcome);
  EXPECT_THAT(outcome.figure, HasSubstr("CUDA_ERROR_INVALID_VALUE"));
}

TEST(Sharing, ReadOnlyCanBeWritten_Fails) {
  const Outcome outcome = RunTiny(ProbeSharing, {.read_only_is_writable = true});
  EXPECT_FAIL(outcome);
  EXPECT_THAT(outcome.reason, HasSubstr("read-only mapping can be written"));
}

TEST(MapOffset, Refused_Passes) { EXPECT_PASS(RunTiny(ProbeMapOffset)); }

TEST(MapOffset, Accepted_Fails) { EXPECT_FAIL(RunTiny(ProbeMapOffset, {.offset_maps = true})); }

TEST(FreshMemory, Zero_Passes) {
  const Outcome outcome = RunTiny(ProbeFreshMemory);
  EXPECT_PASS(outcome);
  EXPECT_GT(Numbers(outcome).at("filled_bytes"), 30e6);
}

TEST(FreshMemory, OldContents_Fail) {
  const Outcome outcome = RunTiny(ProbeFreshMemory, {.old_contents = true});
  EXPECT_FAIL(outcome);
  EXPECT_GT(Numbers(outcome).at("nonzero_words_between"), 0);
}

TEST(Registration, EveryFigure_IsMeasured) {
  const Outcome outcome = RunTiny(ProbeRegistration);
  EXPECT_GT(Numbers(outcome).at("4 KiB_seconds_per_gib"), 0) << outcome.reason;
  EXPECT_GT(Numbers(outcome).at("4 KiB_copy_ratio"), 0);
  EXPECT_GT(Numbers(outcome).at("4 KiB_stall_seconds"), 0);
}

TEST(Registration, SlowRegistering_Fails) {
  const Outcome outcome = RunTiny(ProbeRegistration, {.slow_calls = true});
  EXPECT_FAIL(outcome);
  EXPECT_THAT(outcome.reason, HasSubstr("s/GiB"));
}

TEST(RegistrationPieces, CostPerCall_Fails) {
  const Outcome outcome = RunTiny(ProbeRegistrationPieces, {.slow_calls = true});
  EXPECT_FAIL(outcome);
  EXPECT_THAT(outcome.reason, HasSubstr("pieces cost more"));
}

TEST(RegistrationPieces, BothWays_AreMeasured) {
  const Outcome outcome = RunTiny(ProbeRegistrationPieces);
  EXPECT_GT(Numbers(outcome).at("whole_seconds_per_gib"), 0) << outcome.reason;
  EXPECT_GT(Numbers(outcome).at("pieces_seconds_per_gib"), 0);
}

// The host's free memory depends on everything else on the machine, so the verdict is not checked.
TEST(RegisteredDeath, EndAndDeviceMemory_AreSeen) {
  Effort effort = TinyEffort();
  std::map<std::string, double> numbers = Numbers(RunTiny(ProbeRegisteredDeath, {}, effort));
  // On a busy machine this takes longer, and host memory may never seem to return.
  while (numbers.at("device_back_seconds") < 0 && effort.return_seconds < 60) {
    effort.return_seconds *= 4;
    numbers = Numbers(RunTiny(ProbeRegisteredDeath, {}, effort));
  }
  EXPECT_GE(numbers.at("end_of_file_seconds"), 0);
  EXPECT_GE(numbers.at("end_seconds"), 0);
  EXPECT_GE(numbers.at("device_back_seconds"), 0);
}

TEST(Overlap, KernelsAndCopies_AreCounted) {
  Effort effort = TinyEffort();
  Outcome outcome = RunTiny(ProbeOverlap, {}, effort);
  // On a busy machine nothing may run within a short window.
  while (Numbers(outcome).at("copies_alone_bytes_per_second") == 0 && effort.window_seconds < 10) {
    effort.window_seconds *= 2;
    outcome = RunTiny(ProbeOverlap, {}, effort);
  }
  const std::map<std::string, double> numbers = Numbers(outcome);
  EXPECT_GT(numbers.at("copies_alone_bytes_per_second"), 0) << outcome.reason;
  for (const char* kind : {"arithmetic", "memory-bound"}) {
    for (const char* key : {"_own_kernels_kept", "_own_copies_kept", "_other_kernels_kept"}) {
      EXPECT_TRUE(numbers.contains(std::string(kind) + key)) << kind << key;
    }
  }
}

TEST(Pieces, EachSizeInEachDirection_IsMeasured) {
  const Outcome outcome = RunTiny(ProbePieces);
  for (const char* key : {"up_share_1_mib", "down_share_2_mib", "both_share_1_mib"}) {
    EXPECT_GT(Numbers(outcome).at(key), 0) << key << outcome.reason;
  }
}

TEST(Pieces, CostPerPiece_Fails) {
  const Outcome outcome = RunTiny(ProbePieces, {.slow_calls = true});
  EXPECT_FAIL(outcome);
  EXPECT_THAT(outcome.reason, HasSubstr("a chunk of 1 MiB"));
}

TEST(CompletionWords, AfterTheData_Pass) {
  const Outcome outcome = RunTiny(ProbeCompletionWords);
  EXPECT_PASS(outcome);
  EXPECT_EQ(Numbers(outcome).at("small_copies"), 2000);
  EXPECT_EQ(Numbers(outcome).at("large_copies"), 21);
}

TEST(CompletionWords, BeforeTheData_Fail) {
  const Outcome outcome = RunTiny(ProbeCompletionWords, {.word_before_data = true});
  EXPECT_FAIL(outcome);
  EXPECT_GT(Numbers(outcome).at("early_words"), 0);
}

TEST(DeadWriter, WaitingStreamIsFreed_Passes) { EXPECT_PASS(RunTiny(ProbeDeadWriter)); }

TEST(DeadWriter, StreamDoesNotWait_Fails) {
  EXPECT_FAIL(RunTiny(ProbeDeadWriter, {.waits_pass = true}));
}

TEST(HostFunction, BothCosts_AreMeasured) {
  const Outcome outcome = RunTiny(ProbeHostFunction);
  EXPECT_GT(Numbers(outcome).at("host_function_seconds"), 0) << outcome.reason;
  EXPECT_GT(Numbers(outcome).at("word_seconds"), 0);
}

TEST(HostFunction, SlowWords_Fail) {
  EXPECT_FAIL(RunTiny(ProbeHostFunction, {.slow_calls = true}));
}

TEST(ContextSize, OrdinaryContext_Passes) {
  const Outcome outcome = RunTiny(ProbeContextSize);
  EXPECT_PASS(outcome);
  EXPECT_EQ(Numbers(outcome).at("init_bytes"), 0);
  EXPECT_EQ(Numbers(outcome).at("context_bytes"), static_cast<double>(kFakeContextBytes));
}

TEST(ContextSize, HugeContext_Fails) {
  EXPECT_FAIL(RunTiny(ProbeContextSize, {.context_is_huge = true}));
}

TEST(DmaAfterDeath, CopiesEndWithTheirProcess_Passes) {
  const Outcome outcome = RunTiny(ProbeDmaAfterDeath);
  EXPECT_PASS(outcome);
  EXPECT_EQ(Numbers(outcome).at("alone_kills"), 6);
  EXPECT_EQ(Numbers(outcome).at("with_child_kills"), 2);
  EXPECT_GT(Numbers(outcome).at("alone_in_flight"), 0);
}

TEST(DmaAfterDeath, CopiesGoOn_Fails) {
  const Outcome outcome = RunTiny(ProbeDmaAfterDeath, {.copies_after_death = true});
  EXPECT_FAIL(outcome);
  EXPECT_GT(Numbers(outcome).at("alone_overwritten"), 0);
}

TEST(DmaAfterDeath, NoCopyWasInterrupted_ProvesNothingAndFails) {
  Effort effort = TinyEffort();
  effort.dma_queue = 1;
  const Outcome outcome = RunTiny(ProbeDmaAfterDeath, {}, effort);
  EXPECT_FAIL(outcome);
  EXPECT_THAT(outcome.reason, HasSubstr("nothing is proved"));
}

TEST(Accounting, OrphanIsShown_Passes) {
  const Outcome outcome = RunTiny(ProbeAccounting);
  EXPECT_PASS(outcome);
  EXPECT_EQ(Numbers(outcome).at("missing_bytes"), 4.0 * kMib);
  EXPECT_EQ(Numbers(outcome).at("left_bytes"), 0);
}

TEST(Accounting, OrphanIsNotCounted_Fails) {
  EXPECT_FAIL(RunTiny(ProbeAccounting, {.orphans_not_counted = true}));
}

TEST(DeviceCopy, Rate_IsMeasured) {
  EXPECT_GT(Numbers(RunTiny(ProbeDeviceCopy)).at("bytes_per_second"), 0);
}

TEST(Link, Rates_AreMeasured) {
  const Outcome outcome = RunTiny(ProbeLink);
  EXPECT_GT(Numbers(outcome).at("up_bytes_per_second"), 0);
  EXPECT_GT(Numbers(outcome).at("both_bytes_per_second"), 0);
}

// The rates depend on the processor's other work.
TEST(Link, Verdict_IsThatOfItsRates) {
  const Outcome outcome = RunTiny(ProbeLink);
  const std::map<std::string, double> numbers = Numbers(outcome);
  const Outcome judged = JudgeLink({.up = numbers.at("up_bytes_per_second"),
                                    .down = numbers.at("down_bytes_per_second"),
                                    .both = numbers.at("both_bytes_per_second")});
  EXPECT_EQ(outcome.verdict, judged.verdict);
  EXPECT_EQ(outcome.figure, judged.figure);
}

}  // namespace
}  // namespace geminid::gpu_verify
