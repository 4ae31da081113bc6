# Run in a guest that has mounted the image with limits: takes the steps of a file one by one, and prints
# after each its error and what the kernel knows of the owners.
use strict;
use POSIX ();

my ($steps) = @ARGV;
my $DEVICE = "/dev/ubda";
my $ROOT = "/mnt";
my $PROJECT_DIRECTORY = "p";
my $BLOCK = 1024;
my %SYSCALL = (
    statfs => 137, sync => 162, quotactl => 179, setxattr => 188, clock_settime => 227,
);

$| = 1;
sub fail { die("@_: $!\n") }

chdir($ROOT);
chmod(0777, ".");
umask(0);

# Returns the bytes as they are then, or nothing.
sub quota {
    my ($command, $kind, $id, $bytes) = @_;
    my $done = syscall($SYSCALL{quotactl}, $command << 8 | $kind, $DEVICE, int($id), $bytes);
    return $done == 0 ? $bytes : undef;
}

# Tens of minutes until a time of grace ends: as exact as steps may be slow.
sub left {
    my ($end) = @_;
    return $end == 0 ? "-" : POSIX::floor(($end - time() + 300) / 600);
}

sub owner {
    my ($kind, $id) = @_;
    my $record = quota(0x800007, $kind, $id, "\0" x 72) or fail("Q_GETQUOTA");
    my @fields = unpack("Q8", $record);
    return join(",", @fields[2, 5], left($fields[6]), left($fields[7]));
}

sub space {
    my $statistics = "\0" x 120;
    syscall($SYSCALL{statfs}, $PROJECT_DIRECTORY, $statistics) == 0 or fail("statfs");
    my (undef, undef, $blocks, undef, $available, $inodes, $left) = unpack("q7", $statistics);
    # Without a limit, what is kept back of the image would show.
    return $blocks > 1000 ? "-" : join(",", $blocks, $available, $inodes, $left);
}

sub write_blocks {
    my ($name, $first, $count, $flags) = @_;
    sysopen(my $file, $name, $flags) or return 0;
    for my $block ($first .. $first + $count - 1) {
        sysseek($file, $block * $BLOCK, 0);
        defined(syswrite($file, "x" x $BLOCK)) or return 0;
    }
    return 1;
}

# What a project's directory is: FS_IOC_FSSETXATTR with the flag to inherit.
sub set_project {
    my ($name, $project) = @_;
    sysopen(my $directory, $name, POSIX::O_RDONLY) or return 0;
    my $attributes = pack("L5x8", 0x200, 0, 0, $project, 0);
    return ioctl($directory, 0x401c5820, $attributes);
}

# Whatever a system call is given as bytes has to be a variable.
sub set_attribute {
    my ($path, $length) = @_;
    my ($name, $value) = ("user.a", "x" x $length);
    return syscall($SYSCALL{setxattr}, $path, $name, $value, $length, 0) == 0;
}

my %steps = (
    limits => sub { quota(0x800008, $_[0], $_[1], pack("Q8Lx4", @_[3, 2], 0, @_[5, 4], 0, 0, 0, 5)) },
    grace => sub { quota(0x800006, $_[0], 0, pack("QQLL", @_[1, 2], 0, 3)) },
    create => sub { sysopen(my $file, $_[0], POSIX::O_CREAT | POSIX::O_EXCL | POSIX::O_WRONLY, 0666) },
    write => sub { write_blocks(@_, POSIX::O_WRONLY) },
    cut => sub { truncate($_[0], $_[1] * $BLOCK) },
    unlink => sub { unlink($_[0]) },
    rename => sub { rename($_[0], $_[1]) },
    owner => sub { chown($_[1], $_[2], $_[0]) },
    directory => sub { mkdir($_[0], 0777) },
    "remove-directory" => sub { rmdir($_[0]) },
    symlink => sub { symlink("x" x 100, $_[0]) },
    attribute => sub { set_attribute(@_) },
    project => sub { set_project(@_) },
    sync => sub { syscall($SYSCALL{sync}); 1 },
    days => sub {
        syscall($SYSCALL{sync});
        my $now = pack("qq", time() + $_[0] * 86400, 0);
        syscall($SYSCALL{clock_settime}, 0, $now) == 0;
    },
);

open(my $list, "<", $steps) or fail($steps);
while (my $line = <$list>) {
    my ($by, $what, @how) = split(" ", $line);
    @how = map { /^-?\d+$/ ? $_ + 0 : $_ } @how;
    if ($by != 0) {
        $) = "$by $by 2000";
        $> = $by;
    }
    $! = 0;
    my $error = $steps{$what}->(@how) ? 0 : $! + 0;
    $> = 0;
    $) = "0 0";
    my @owners = map { owner(@$_) } [0, 1000], [1, 1000], [1, 2000], [2, 2000];
    print "$error @owners ", space(), "\n";
}
