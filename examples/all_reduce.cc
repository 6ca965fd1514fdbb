/* The C API from C++: every process adds its numbers to the others'.
 *
 *   g++ -std=c++20 all_reduce.cc -I"$INCLUDE" -L"$LIB" -lstarling -Wl,-rpath,"$LIB" -o all_reduce
 *   mpirun -n 4 ./all_reduce
 *
 * As root Open MPI wants --allow-run-as-root, on fewer cores --oversubscribe.
 * `starling info` prints where the headers and the library are. */
#include <starling/starling.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(starling_status status) {
  if (status == STARLING_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", starling_status_name(status), starling_last_error());
  std::exit(1);
}

static uint32_t number_from(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? uint32_t(std::atoi(text)) : 0;
}

int main() {
  starling_context* context = nullptr;
  check(starling_context_create(nullptr, &context));

  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.rank = number_from("OMPI_COMM_WORLD_RANK");
  options.size = number_from("OMPI_COMM_WORLD_SIZE");
  options.name = "world";
  starling_comm* comm = nullptr;
  check(starling_comm_create(context, &options, &comm));

  std::vector<float> numbers(8, float(options.rank + 1));
  starling_operation sum{};
  sum.struct_bytes = sizeof sum;
  sum.kind = STARLING_ALL_REDUCE;
  sum.input = sum.output = numbers.data();
  sum.count = numbers.size();
  sum.data_type = STARLING_FLOAT32;
  sum.reduce_op = STARLING_SUM;
  starling_request* request = nullptr;
  check(starling_submit(comm, &sum, &request));
  check(starling_wait(request, -1));
  starling_request_free(request);
  std::printf("rank %u of %u: %g\n", options.rank, options.size, double(numbers[0]));

  check(starling_comm_destroy(comm));
  check(starling_context_destroy(context));
}
