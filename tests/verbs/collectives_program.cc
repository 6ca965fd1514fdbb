// Collectives between two hosts over Soft-RoCE, in a guest (init.sh), while a rail fails. Ranks are
// processes, which take those of the other half for ranks of another host; every element of every result is
// checked (rank_programs.h).
//
//   collectives_program [NAME...]     one line for each case: CASE name passed, or CASE name failed: why
#include "verbs/job.h"

namespace starling {
namespace {

using namespace guest;

void collectives_ride_on_rdma() {
  const uint64_t before = packets_sent(0);
  Job job;
  job.go_on(8);
  const uint64_t sent = packets_sent(0) - before;
  if (sent < 100) throw Failure{"the device has sent next to nothing: " + std::to_string(sent) + " packets"};
  job.end();
}

// Slots as on a GPU that the devices reach by themselves: a host that touches one of them dies of it.
const Job::Settings kOnDevices = {{"STARLING_GPUDIRECT", "anywhere"}};

void expect_nothing_copied(const Job& job) {
  for (const uint32_t rank : {0u, 1u})
    if (job.copied_bytes(rank) != 0 || job.straight_bytes(rank) < 100'000)
      throw Failure{"rank " + std::to_string(rank) + " sent " + std::to_string(job.straight_bytes(rank)) +
                    " bytes straight, and copied " + std::to_string(job.copied_bytes(rank))};
}

void outlive_a_port(const Job::Settings& settings, const Job::Settings& of_first = {}) {
  Job job(orderly, settings, of_first);
  job.go_on(8);
  const uint64_t before = packets_sent(1);
  port(0, 'a', false);
  job.go_on(8);
  if (packets_sent(1) < before + 50) throw Failure{"the backup was not used by RDMA"};
  heal(0);
  job.return_to_the_first_rail();
  if (!settings.empty() && settings == kOnDevices) expect_nothing_copied(job);
  job.end();
}

void collectives_outlive_a_port() { outlive_a_port({}); }
// As for ranks on GPUs: their blocks ring for nobody, and the links' threads look.
void collectives_that_are_looked_for_outlive_a_port() { outlive_a_port({{"STARLING_LINK_POLLS", "1"}}); }

void messages_on_devices_outlive_a_port() { outlive_a_port(kOnDevices); }
void messages_on_one_device_outlive_a_port() { outlive_a_port({}, kOnDevices); }

void outlive_silence(const Job::Settings& settings) {
  Job job(orderly, settings);
  job.go_on(4);
  lose(0, 'b', "100%");
  job.go_on(8);
  heal(0);
  job.go_on(4);
  job.end();
}
void collectives_outlive_silence() { outlive_silence({}); }
void messages_on_devices_outlive_silence() { outlive_silence(kOnDevices); }

// The address, and the GID with it, is another one when the port comes up. The end that has moved calls the
// other, which learns from the call where to call.
void port_heals_with_another_address(char end) {
  Job job;
  job.go_on(8);
  port(0, end, false);
  job.go_on(8);
  come_up_elsewhere(0, end);
  job.return_to_the_first_rail();
  job.end();
}
void first_hosts_port_heals_with_another_address() { port_heals_with_another_address('a'); }
void second_hosts_port_heals_with_another_address() { port_heals_with_another_address('b'); }

void program_outlives_failures(Round round, const Job::Settings& settings = {}) {
  Job job(round, settings);
  job.go_on(1);
  port(0, 'a', false);
  job.go_on(2);
  heal(0);
  job.go_on(1);
  lose(0, 'a', "100%");
  job.go_on(2);
  heal(0);
  job.go_on(1);
  job.end();
}
void dfccl_program_1_outlives_failures() { program_outlives_failures(program_1); }
void dfccl_program_2_outlives_failures() { program_outlives_failures(program_2); }
void dfccl_program_2_on_devices_outlives_failures() { program_outlives_failures(program_2, kOnDevices); }

constexpr Case kCases[] = {
    {"collectives_ride_on_rdma", collectives_ride_on_rdma},
    {"collectives_outlive_a_port", collectives_outlive_a_port},
    {"collectives_that_are_looked_for_outlive_a_port", collectives_that_are_looked_for_outlive_a_port},
    {"messages_on_devices_outlive_a_port", messages_on_devices_outlive_a_port},
    {"messages_on_one_device_outlive_a_port", messages_on_one_device_outlive_a_port},
    {"collectives_outlive_silence", collectives_outlive_silence},
    {"messages_on_devices_outlive_silence", messages_on_devices_outlive_silence},
    {"first_hosts_port_heals_with_another_address", first_hosts_port_heals_with_another_address},
    {"second_hosts_port_heals_with_another_address", second_hosts_port_heals_with_another_address},
    {"dfccl_program_1_outlives_failures", dfccl_program_1_outlives_failures},
    {"dfccl_program_2_outlives_failures", dfccl_program_2_outlives_failures},
    {"dfccl_program_2_on_devices_outlives_failures", dfccl_program_2_on_devices_outlives_failures},
};

}  // namespace
}  // namespace starling

int main(int argc, char** argv) { return starling::guest::run_those(starling::kCases, argc - 1, argv + 1); }
