// The handler of the emulated processor's exception 6, "invalid opcode": it executes the instruction
// that the processor lacks and returns behind it, as an operating system would that emulates one.
// It runs on the emulated processor. An instruction that it does not know, or that would fault, halts.
#include <cstddef>

#include "instruction.hpp"
#include "machine.hpp"

namespace hk::test {

extern "C" __attribute__((visibility("default"))) TileState hk_tiles;
TileState hk_tiles;

extern "C" __attribute__((visibility("default"))) uint64_t hk_interpreted;
uint64_t hk_interpreted;

extern "C" __attribute__((visibility("default"))) bool hk_decode(const uint8_t* code,
                                                                 Instruction* instruction) {
  return decode(code, *instruction);
}

extern "C" __attribute__((visibility("default"))) const char* hk_name(Operation operation) {
  return name(operation);
}

uint64_t address_of(const Instruction& i, const Frame& f) {
  uint64_t address = static_cast<int64_t>(i.displacement);
  if (i.base == RIP) {
    address += f.rip + i.length;
  } else if (i.base != NONE) {
    address += f.general[i.base];
  }
  const bool stride = i.vector_bytes == 0 && i.operation >= Operation::tileloadd;
  if (i.index != NONE && !stride) address += f.general[i.index] << i.shift;
  return address;
}

extern "C" __attribute__((visibility("hidden"))) bool hk_interpret(Frame* frame) {
  Instruction instruction;
  if (!decode(reinterpret_cast<const uint8_t*>(frame->rip), instruction)) return false;
  const bool done = instruction.vector_bytes ? execute_vector(instruction, *frame)
                                             : execute_tile(instruction, *frame, hk_tiles);
  if (!done) return false;
  frame->rip += instruction.length;
  ++hk_interpreted;
  return true;
}

// The stack is the handler's own (IST), so the red zone of the interrupted code stays.
static_assert(sizeof(Frame) == 2304 && offsetof(Frame, general) == 2136);
asm(R"(
.text
.globl hk_invalid_opcode
hk_invalid_opcode:
  push %r15; push %r14; push %r13; push %r12; push %r11; push %r10; push %r9; push %r8
  push %rdi; push %rsi; push %rbp; push 112(%rsp); push %rbx; push %rdx; push %rcx; push %rax
  sub $2136, %rsp
.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
  vmovaps %zmm\n, 64*\n(%rsp)
.endr
.irp n,0,1,2,3,4,5,6,7
  kmovq %k\n, 2048+8*\n(%rsp)
.endr
  stmxcsr 2112(%rsp)
  ldmxcsr flushing(%rip)
  mov %rsp, %rdi
  call hk_interpret
  test %al, %al
  jz refused
.irp n,0,1,2,3,4,5,6,7
  kmovq 2048+8*\n(%rsp), %k\n
.endr
.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
  vmovaps 64*\n(%rsp), %zmm\n
.endr
  ldmxcsr 2112(%rsp)
  add $2136, %rsp
  pop %rax; pop %rcx; pop %rdx; pop %rbx; add $8, %rsp; pop %rbp; pop %rsi; pop %rdi
  pop %r8; pop %r9; pop %r10; pop %r11; pop %r12; pop %r13; pop %r14; pop %r15
  iretq
refused:
  hlt
.align 4
flushing: .long 0x9FC0  # FTZ, DAZ, nearest even, every exception masked
)");

}  // namespace hk::test
