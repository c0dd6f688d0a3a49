/* The 64 KiB ROM of the emulated machine, with no BIOS in it: from the reset vector to 32-bit flat protected mode, then to
 * the Linux kernel's PVH entry. The boot image (start information at 0x100000, kernel, initrd) is in RAM already, put
 * there by Bochs' optramimage1.
 *   0x100000  hvm_start_info (ebx at the entry)
 *   0x100ff0  u32 end address of the boot image
 *   0x100ff4  u32 physical address of the PVH entry */
        .code16
        .globl _start
_start:
        cli
        cld
        lgdtl   %cs:gdtdesc
        movl    %cr0, %eax
        orb     $1, %al
        andl    $0x9fffffff, %eax       /* caches on */
        movl    %eax, %cr0
        ljmpl   $8, $(0xffff0000 + flat)
        .code32
flat:   movw    $16, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movw    %ax, %fs
        movw    %ax, %gs
        movb    $2, %al                 /* A20 on */
        outb    %al, $0x92
        /* Bochs hands out host memory to guest memory blocks on first touch, in that order, but reads a RAM image in one
         * go into consecutive host memory: touch the image's blocks in ascending order. */
        movl    $0x100000, %esi
1:      movb    (%esi), %al
        addl    $0x1000, %esi
        cmpl    0x100ff0, %esi
        jb      1b
        movl    $0x100000, %ebx
        jmp     *0x100ff4
        .balign 16
gdt:    .quad   0
        .quad   0x00cf9b000000ffff
        .quad   0x00cf93000000ffff
gdtdesc: .word  23
        .long   0xffff0000 + gdt
        .org    0xfff0
        .code16
        .byte   0xe9                    /* jmp _start */
        .word   _start - (. + 2)
        .org    0x10000
