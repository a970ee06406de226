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
	const shape = "2006-01-02T15:04:05"
	if len(s) < len(shape) || s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return 0, BadTime
	}
	century, year, month, day := twoDigits(s[0:2]), twoDigits(s[2:4]), twoDigits(s[5:7]), twoDigits(s[8:10])
	hour, minute, second := twoDigits(s[11:13]), twoDigits(s[14:16]), twoDigits(s[17:19])
	year += century * 100
	// A pair that is no number is -1 or far out of range, in the year too.
	if century < 0 || year < 0 || year > 9999 || month < 1 || month > 12 || day < 1 ||
		day > daysInMonth(year, month) ||
		uint(hour) > 23 || uint(minute) > 59 || uint(second) > 59 {
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
	at := daysSince1970(year, month, day)*secondsPerDay + int64(hour*3600+minute*60+second) - offset
	if at < minSecond || at > maxSecond {
		return 0, BadTime
	}
	return at*microsPerSecond + micros, present
}

// twoDigits returns the number that two digits write. A byte that is no digit makes it a number
// far out of any range.
func twoDigits(s string) int {
	tens, units := s[0]-'0', s[1]-'0'
	if tens > 9 || units > 9 {
		return -1 << 20
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
