/* Laid over the kernel's fpu_xstate_prctl(option: edi, argument: rsi), past its 5-byte ftrace call. Bochs has AMX but not
 * XFD, without which Linux leaves AMX off. This switches the tile state on in XCR0 when a program asks for the permission
 * (the guest's init does, too). The kernel knows nothing of the tile state, and so neither saves nor clears it at a context
 * switch: right for one thread that uses AMX, wrong for several. */
        cmpl    $0x1023, %edi           /* ARCH_REQ_XCOMP_PERM */
        je      1f
        cmpl    $0x1022, %edi           /* ARCH_GET_XCOMP_SUPP, ARCH_GET_XCOMP_PERM */
        ja      2f
        stac
        movl    $0x600e7, %eax
        movq    %rax, (%rsi)
        clac
        jmp     3f
1:      cmpl    $18, %esi
        ja      2f
        xorl    %ecx, %ecx
        xgetbv
        orl     $0x60000, %eax
        xsetbv
3:      xorl    %eax, %eax
        ret
2:      movq    $-22, %rax
        ret
