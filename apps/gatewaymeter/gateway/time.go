package gateway

const (
	microsPerSecond = 1_000_000
	secondsPerDay   = 86_400
	// minSecond and maxSecond are the first and the last second of the years 0000 to 9999.
	minSecond = -62_167_219_200
	maxSecond = 253_402_300_799
)

// parseTime reads an RFC 3339 time as microseconds since 1970-01-01T00:00:00Z, rounded down.
func parseTime(s string) (int64, Reason) {
	const shape = "0000-00-00t00:00:00"
	if len(s) < len(shape) {
		return 0, BadTime
	}
	// Against the shape, a digit becomes its value and a separator 0. T and t are one.
	day := load(s[0:8]) ^ load(shape[0:8])
	clock := (load(s[8:16]) | 0x20<<16) ^ load(shape[8:16])
	seconds := (uint64(s[16]) | uint64(s[17])<<8 | uint64(s[18])<<16) ^ (':' | '0'<<8 | '0'<<16)
	if !digits(day, 0x7f_76_76_7f_76_76_76_76) || !digits(clock, 0x76_76_7f_76_76_7f_76_76) ||
		!digits(seconds, 0x76_76_7f) {
		return 0, BadTime
	}
	year, month, dayOfMonth := pair(day)*100+pair(day>>16), pair(day>>40), pair(clock)
	hour, minute, second := pair(clock>>24), pair(clock>>48), pair(seconds>>8)
	if month < 1 || month > 12 || dayOfMonth < 1 || dayOfMonth > daysInMonth(year, month) ||
		hour > 23 || minute > 59 || second > 59 {
		return 0, BadTime
	}
	micros, rest, fault := parseFraction(s[len(shape):])
	if fault != present {
		return 0, fault
	}
	offset, fault := parseZone(rest)
	if fault != present {
		return 0, fault
	}
	at := daysSince1970(year, month, dayOfMonth)*secondsPerDay + int64(hour*3600+minute*60+second) - offset
	if at < minSecond || at > maxSecond {
		return 0, BadTime
	}
	return at*microsPerSecond + micros, present
}

// load returns eight bytes of s, the first one lowest.
func load(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// digits tells whether each byte of x is at most 9 where limits has 0x76, and 0 where it has
// 0x7f: a larger one sets its high bit when the limit is added. (One that has it set already
// may carry into the next byte, but is refused itself.)
func digits(x, limits uint64) bool { return (x|(x+limits))&highs == 0 }

// pair returns the number that the two lowest bytes of x write, the lowest of them the tens.
func pair(x uint64) int { return int(x&15)*10 + int(x>>8&15) }

// twoDigits returns the number that two digits write, and a negative one if they are not digits.
func twoDigits(s string) int {
	tens, units := s[0]-'0', s[1]-'0'
	if tens > 9 || units > 9 {
		return -1
	}
	return int(tens)*10 + int(units)
}

// parseFraction reads the fraction of a second that s may begin with, as whole microseconds.
func parseFraction(s string) (micros int64, rest string, fault Reason) {
	if s == "" || s[0] != '.' {
		return 0, s, present
	}
	end := 1
	for end < len(s) && s[end]-'0' <= 9 {
		if end <= 6 {
			micros = micros*10 + int64(s[end]-'0')
		}
		end++
	}
	switch n := end - 1; {
	case n == 0:
		return 0, s, BadTime
	case n > 9:
		return 0, s, TooPrecise
	}
	for n := end - 1; n < 6; n++ {
		micros *= 10
	}
	return micros, s[end:], present
}

// parseZone reads what must be the whole rest of a time: Z or an offset, in seconds east of UTC.
func parseZone(s string) (offset int64, fault Reason) {
	if s == "" {
		return 0, NoZone
	}
	if len(s) == 1 && s[0]|0x20 == 'z' {
		return 0, present
	}
	if len(s) != len("+00:00") || s[3] != ':' || s[0] != '+' && s[0] != '-' {
		return 0, BadTime
	}
	hours, minutes := twoDigits(s[1:3]), twoDigits(s[4:6])
	if uint(hours) > 23 || uint(minutes) > 59 {
		return 0, BadTime
	}
	offset = int64(hours*3600 + minutes*60)
	if s[0] == '-' {
		offset = -offset
	}
	return offset, present
}

func daysInMonth(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// daysSince1970 counts the days from 1970-01-01 to a date of the Gregorian calendar, before
// which it goes on unchanged (as RFC 3339 does).
//
// Years are counted from March, so that the leap day is the last one of its year, and months
// from March on begin after (153·m + 2) / 5 days.
func daysSince1970(year, month, day int) int64 {
	year, month = year+399, month+9 // from March of a year that 400 divides; never negative
	if month >= 12 {
		year, month = year+1, month-12
	}
	days := year*365 + year/4 - year/100 + year/400 + (153*month+2)/5 + day - 1
	const epoch = 865_565 // 1970-01-01, counted so
	return int64(days - epoch)
}
