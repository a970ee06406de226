package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileSystemsByType(t *testing.T) {
	// The last five are ext4, XFS, Btrfs, overlay and tmpfs.
	for magic, want := range map[uint32]string{
		0x6969: "nfs", 0xff534d42: "smb", 0xfe534d42: "smb", 0x01021997: "9p", 0x65735546: "fuse",
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x794c7630: "", 0x01021994: "",
	} {
		require.Equal(t, want, refusedName(magic), "%#x", magic)
	}
}
