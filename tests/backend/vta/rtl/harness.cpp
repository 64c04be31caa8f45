// Runs a program on the accelerator that Verilator made of the Verilog, with device memory at its two ports.
// harness MEMORY ADDRESS COUNT LATENCY MOST_CYCLES: prints the cycles, and writes the memory back.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "Vaccelerator.h"
#include "verilated.h"

struct Response {
    uint64_t due, tag, data;
};

struct Port {
    std::deque<Response> waiting;
    bool shown = false, ready = true;
};

static std::vector<uint8_t> memory;

static uint64_t word(uint64_t address) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value |= uint64_t(memory.at(8 * address + i)) << (8 * i);
    return value;
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    FILE *file = std::fopen(arguments[1], "r+b");
    if (!file) return 2;
    std::fseek(file, 0, SEEK_END);
    memory.resize(std::ftell(file));
    std::rewind(file);
    if (std::fread(memory.data(), 1, memory.size(), file) != memory.size()) return 2;
    const uint64_t latency = std::strtoull(arguments[4], nullptr, 10);
    const uint64_t most = std::strtoull(arguments[5], nullptr, 10);

    Vaccelerator top;
    Port ports[2];
    top.rst = 0;
    top.start = 0;
    top.address = std::strtoull(arguments[2], nullptr, 10) / 8;
    top.count = std::strtoull(arguments[3], nullptr, 10);
    top.fetch_ready = top.data_ready = 1;
    top.fetch_response = top.data_response = 0;
    for (uint64_t now = 1; now <= most; now++) {
        top.start = now == 2;
        top.clk = 0;
        top.eval();
        const bool finished = top.finished;
        const bool requests[2] = {bool(top.fetch_request), bool(top.data_request)};
        const bool taken[2] = {bool(top.fetch_response_ready), bool(top.data_response_ready)};
        const uint64_t addresses[2] = {top.fetch_address, top.data_address};
        const bool write = top.data_write;
        const uint64_t data = top.data_data, mask = top.data_mask, tag = top.data_tag;
        top.clk = 1;
        top.eval();
        for (int i = 0; i < 2; i++) {
            Port &port = ports[i];
            if (port.shown && taken[i]) port.waiting.pop_front();
            if (requests[i] && port.ready) {
                uint64_t answer = 0;
                if (i && write) {
                    for (int byte = 0; byte < 8; byte++)
                        if (mask >> byte & 1) memory.at(8 * addresses[i] + byte) = uint8_t(data >> (8 * byte));
                } else {
                    answer = word(addresses[i]);
                }
                port.waiting.push_back({now + latency - 1, i ? tag : 0, answer});
            }
            port.shown = !port.waiting.empty() && port.waiting.front().due <= now;
            port.ready = port.waiting.size() < latency + 16;
        }
        top.fetch_response = ports[0].shown;
        top.data_response = ports[1].shown;
        top.fetch_ready = ports[0].ready;
        top.data_ready = ports[1].ready;
        if (ports[0].shown) top.fetch_response_data = ports[0].waiting.front().data;
        if (ports[1].shown) {
            top.data_response_data = ports[1].waiting.front().data;
            top.data_response_tag = ports[1].waiting.front().tag;
        }
        if (finished) {
            std::rewind(file);
            if (std::fwrite(memory.data(), 1, memory.size(), file) != memory.size() || std::fclose(file)) return 2;
            std::printf("%llu\n", static_cast<unsigned long long>(now - 1));
            return 0;
        }
    }
    return 3;
}
